#include "runtime/worker/joining.h"

#include "runtime/worker/deadline.h"
#include "runtime/worker/environment.h"
#include "runtime/worker/init_method.h"
#include "runtime/worker/process_group.h"
#include "runtime/worker/shm/shared_memory.h"
#include "runtime/worker/waiting_in_store.h"
#ifdef DISTRUN_HAS_GLOO
#include "runtime/worker/gloo/gloo_transport.h"
#endif

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <unistd.h>
#include <utility>

namespace distrun {
namespace {

std::string this_process() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return "pid " + std::to_string(::getpid()) + " on " + host;
}

constexpr const char* kDeterministic = "DISTRUN_DETERMINISTIC";

bool is_on(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// What a rank that cannot join tells the others, which would wait for it until their time is up.
constexpr const char* kGaveUp = "gave_up";

void throw_if_another_gave_up(Store& group, const GroupEngine::Identity& me) {
  if (!group.check({kGaveUp})) return;
  const std::string text = group.get(kGaveUp);  // "RANK reason"
  const std::size_t space = text.find(' ');
  throw DistBackendError(
      "process group \"" + me.name + "\": rank " + text.substr(0, space) +
          " could not join: " + text.substr(std::min(space, text.size() - 1) + 1),
      std::atoi(text.c_str()));
}

// Every rank enters itself and waits for the others; who is missing is named.  `group`: where a
// rank tells that it has given up.
void meet(Store& store, Store& group, const GroupEngine::Identity& me, TimePoint deadline) {
  if (store.add("joined/" + std::to_string(me.rank), 1) != 1)
    throw DistStoreError("process group \"" + me.name + "\": rank " + std::to_string(me.rank) +
                         " has joined already, on " + store.description() +
                         ": two processes with one RANK, or a second group with one name");
  store.set(FailureBoard::member_key(me.rank), this_process());
  std::vector<std::string> members;
  members.reserve(static_cast<std::size_t>(me.size));
  for (int rank = 0; rank < me.size; ++rank) members.push_back(FailureBoard::member_key(rank));
  try {
    wait_or_hear(store, members, deadline, [&] { throw_if_another_gave_up(group, me); });
  } catch (const DistTimeoutError&) {
    std::string missing;
    std::optional<int> first;
    for (int rank = 0; rank < me.size; ++rank) {
      if (store.check({FailureBoard::member_key(rank)})) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      if (!first) first = rank;
    }
    throw DistTimeoutError("process group \"" + me.name + "\": rank " + std::to_string(me.rank) +
                               " of " + std::to_string(me.size) + " waited " +
                               to_string(me.timeout) + " for the others; not there: rank " +
                               missing,
                           first);
  }
}

// With the ranks that are on this rank's host, if there are any.
void connect_host(GroupEngine::Links& links, const GroupEngine::Identity& me, TimePoint deadline) {
  PrefixStore store("hosts", links.store);
  const std::vector<int> hosts = host_of(store, me.rank, me.size, deadline);
  const auto on = [&](int host) {
    std::vector<int> ranks;
    for (int rank = 0; rank < me.size; ++rank)
      if (hosts[static_cast<std::size_t>(rank)] == host) ranks.push_back(rank);
    return ranks;
  };
  const int own = hosts[static_cast<std::size_t>(me.rank)];
  const std::vector<int> here = on(own);
  const auto key = [](int host) { return "shares/" + std::to_string(host); };
  if (here.size() > 1) {
    PrefixStore memory("hosts/memory/" + std::to_string(own), links.store);
    const auto place = std::find(here.begin(), here.end(), me.rank) - here.begin();
    links.host = connect_shared_memory(memory, static_cast<int>(place),
                                       static_cast<int>(here.size()), deadline)
                     .runner;
    if (me.rank == here.front()) store.set(key(own), links.host ? "1" : "0");
  }
  // Where it could not be had, each rank counts as a host; all ranks must count alike.
  std::vector<int> several;  // hosts of more than one rank
  std::vector<std::string> told;
  for (int host = 0; host <= *std::max_element(hosts.begin(), hosts.end()); ++host) {
    if (on(host).size() < 2) continue;
    several.push_back(host);
    told.push_back(key(host));
  }
  const auto left = std::chrono::ceil<Timeout>(std::max(deadline - Clock::now(), Duration(0)));
  std::map<int, bool> shares;
  if (!told.empty()) {
    store.wait(told, deadline == TimePoint::max() ? kNoTimeout : left);
    const std::vector<std::string> words = store.multi_get(told);
    for (std::size_t i = 0; i < words.size(); ++i) shares[several[i]] = words[i] == "1";
  }
  std::map<std::pair<int, int>, int> numbers;  // of a host, or of a rank of one that does not share
  for (int rank = 0; rank < me.size; ++rank) {
    const int host = hosts[static_cast<std::size_t>(rank)];
    const bool shared = shares[host];
    const auto number = static_cast<int>(numbers.size());
    links.host_of.push_back(numbers.try_emplace({host, shared ? -1 : rank}, number).first->second);
  }
}

#ifdef DISTRUN_HAS_GLOO
bool share_memory(const GroupEngine::Links& links) {
  const auto& hosts = links.host_of;
  return links.host && std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
}

GlooAddress address_for(const Store& store, const std::string& local_address) {
  GlooAddress address;
  address.address = local_address;
  if (!local_address.empty()) return address;
  address.variable = "GLOO_SOCKET_IFNAME";
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* names = std::getenv(address.variable.c_str())) address.interfaces = names;
  const Store* base = &store;
  std::shared_ptr<Store> held;
  if (const auto* prefix = dynamic_cast<const PrefixStore*>(base)) {
    held = prefix->underlying_non_prefix_store();
    base = held.get();
  }
  if (const auto* tcp = dynamic_cast<const TCPStore*>(base)) address.address = tcp->local_address();
  if (address.address.empty()) address.address = "127.0.0.1";
  return address;
}

// Messages between all ranks.
void connect(GroupEngine::Links& links, const GroupEngine::Identity& me,
             const std::string& local_address, TimePoint deadline) {
  const auto mesh = std::make_shared<PrefixStore>("mesh", links.store);
  const GlooAddress address = address_for(*links.store, local_address);
  if (share_memory(links)) {
    // Collectives go another way, and most programs send nothing.
    const CallRunner& host = *links.host;
    links.transport = connect_gloo_when_used(mesh, me.rank, me.size, address,
                                             [&host](int rank) { return host.alive(rank); });
    return;
  }
  links.transport = connect_gloo(*mesh, me.rank, me.size, address, deadline,
                                 [&] { throw_if_another_gave_up(*links.store, me); });
}
#else
void connect(GroupEngine::Links&, const GroupEngine::Identity& me, const std::string&, TimePoint) {
  throw DistUnsupportedError("process group \"" + me.name +
                             "\": this build of the library has no Gloo; build it with "
                             "-DDISTRUN_GLOO=ON (Debian: libgloo-dev)");
}
#endif

void tell_that_it_gave_up(Store& group, const GroupEngine::Identity& me, const DistError& error) {
  // Who was late, or another that gave up, everybody finds by himself.
  if (error.kind() == ErrorKind::timeout || error.peer_rank()) return;
  try {
    group.set(kGaveUp, std::to_string(me.rank) + " " + error.what());
  } catch (const DistError&) {
    // The store is what failed.
  }
}

}  // namespace

namespace {

// Ranks that reduce in different ways would wait for each other.
void agree_on_reductions(Store& store, const GroupEngine::Identity& me) {
  const std::string own = me.deterministic ? "on" : "off";
  const std::string first = store.compare_set("deterministic", "", own);
  if (first != own)
    throw DistArgumentError("process group \"" + me.name + "\": deterministic reductions are " +
                            own + " on rank " + std::to_string(me.rank) + " and " + first +
                            " on another; GroupOptions::deterministic and " + kDeterministic +
                            " are to be the same on all ranks");
}

}  // namespace

GroupEngine::Links join(const MeetingPlace& place, const GroupEngine::Identity& me) {
  GroupEngine::Links links;
  if (me.size == 1) return links;
  const TimePoint deadline = deadline_after(me.timeout, "the group's timeout");
  links.store = std::make_shared<PrefixStore>(place.path + "/" + me.name, place.store->clone());
  try {
    agree_on_reductions(*links.store, me);
    meet(*links.store, *links.store, me, deadline);
    connect_host(links, me, deadline);
    connect(links, me, place.local_address, deadline);
    // A rank that left while others still connect would look to them like a broken network; and all
    // hear of one that cannot.
    PrefixStore connected("connected", links.store);
    meet(connected, *links.store, me, deadline);
  } catch (const DistError& error) {
    tell_that_it_gave_up(*links.store, me, error);
    throw;
  }
  return links;
}

// ---- the first group ---------------------------------------------------------------------------

namespace {

struct Default {
  std::mutex mutex;
  std::weak_ptr<ProcessGroup> group;
};
Default& the_default() {
  static Default held;
  return held;
}

void check_rank(const GroupOptions& options, const std::string& where) {
  if (options.rank < 0 || options.world_size <= options.rank)
    throw DistArgumentError("init_process_group: with " + where +
                            " go rank and world_size, 0 <= rank < world_size; got rank " +
                            std::to_string(options.rank) + " of " +
                            std::to_string(options.world_size));
}

}  // namespace

bool is_initialized() {
  const std::lock_guard lock(the_default().mutex);
  return !the_default().group.expired();
}

std::shared_ptr<ProcessGroup> default_group() {
  const std::lock_guard lock(the_default().mutex);
  auto group = the_default().group.lock();
  if (!group)
    throw DistArgumentError(
        "default_group: there is none; call init_process_group first, and hold what it returns");
  return group;
}

std::shared_ptr<ProcessGroup> init_process_group(std::string_view backend,
                                                 const GroupOptions& options) {
  Backends backends = Backends::resolve(backend, options);
  require_not_negative(options.timeout, "GroupOptions::timeout");
  GroupEngine::Identity me;
  me.timeout = options.timeout;
  me.description = options.description.empty() ? "default_pg" : options.description;
  me.deterministic = options.deterministic || is_on(kDeterministic);
  MeetingPlace place;
  place.local_address = options.local_address;
  int attempt = 0;
  if (options.store) {
    check_rank(options, "a store");
    place.store = options.store;
    me.rank = options.rank;
    me.size = options.world_size;
  } else {
    const Meeting meeting = meeting_of(options, process_environment());
    me.rank = meeting.rank;
    me.size = meeting.world_size;
    attempt = meeting.attempt;
    if (me.size > 1) place.store = open_store(meeting, options.timeout);
  }
  static std::atomic<int> groups_so_far = 0;
  me.name = options.name.empty() ? std::to_string(groups_so_far++) : options.name;
  // A prefix of its own for every group and attempt: no key of an earlier one can be read.
  place.path = "distrun/attempt_" + std::to_string(attempt);
  std::vector<int> ranks(static_cast<std::size_t>(me.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto group = std::make_shared<ProcessGroup>(std::make_unique<ProcessGroup::Impl>(
      std::move(backends), me, std::move(place), std::move(ranks)));
  const std::lock_guard lock(the_default().mutex);
  if (the_default().group.expired()) the_default().group = group;
  return group;
}

}  // namespace distrun
