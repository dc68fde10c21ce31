#include "runtime/worker/shm/join.h"

#include "runtime/worker/shm/host.h"
#include "runtime/worker/shm/unix_socket.h"
#include <distrun/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <set>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace distrun::shm {
namespace {

constexpr std::uint64_t kMagic = 0x6472'7368'6d00'0002;  // changes with any layout
constexpr auto kLookEvery = std::chrono::milliseconds(20);
// So long a rank waits past the deadline for rank 0 to say who was late.
constexpr auto kGrace = std::chrono::seconds(2);

enum class Kind : std::uint32_t { hello, welcome, heaps, ready, verdict };
enum class Outcome : std::uint32_t {
  good,
  no,    // not to be had: `text` says why
  lost,  // `about` was lost
  late,  // `about` has not come
};
using Id = std::array<char, 32>;

struct Message {
  std::uint64_t magic = kMagic;
  Kind kind{};
  Outcome outcome{};
  std::int32_t rank = 0;
  std::int32_t about = 0;
  Id nonce{};
  Id process{};  // hello: see this_process()
  std::array<std::uint64_t, kMaxCpus / 64> cpus{};
  Placement placement{};
  std::uint32_t one_process = 0;
  // welcome: a message with everyone's heap follows; ready: all are mapped; verdict: at every rank
  std::uint32_t heaps = 0;
  std::array<char, 320> text{};
};
static_assert(std::is_trivially_copyable_v<Message>);

Id id_of(std::string_view text) {
  Id id{};
  std::copy_n(text.data(), std::min(text.size(), id.size()), id.data());
  return id;
}

void set_text(Message& message, std::string_view text) {
  text = text.substr(0, message.text.size() - 1);
  std::ranges::fill(message.text, '\0');
  std::ranges::copy(text, message.text.begin());
}

std::string text_of(const Message& message) {
  return {message.text.data(), ::strnlen(message.text.data(), message.text.size())};
}

// The same for all threads of a process, and for no other process anywhere.
Id this_process() {
  static std::mutex mutex;
  static pid_t process = 0;
  static Id id;
  const std::lock_guard lock(mutex);
  if (std::exchange(process, ::getpid()) != ::getpid()) id = id_of(random_hex());
  return id;
}

void set_cpus(Message& message, const CpuSet& cpus) {
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu)
    if (cpus[cpu]) message.cpus[cpu / 64] |= std::uint64_t{1} << cpu % 64;
}

CpuSet cpus_of(const Message& message) {
  CpuSet cpus;
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu)
    cpus[cpu] = (message.cpus[cpu / 64] >> cpu % 64 & 1) != 0;
  return cpus;
}

void send(const Fd& socket, const Message& message, std::span<const int> fds, TimePoint deadline) {
  send_message(socket, std::as_bytes(std::span(&message, 1)), fds, deadline);
}

// nullopt: the other end has closed, or speaks something else.
std::optional<Message> receive(const Fd& socket, Kind kind, std::vector<Fd>& fds,
                               TimePoint deadline) {
  Message message;
  const std::size_t size =
      receive_message(socket, std::as_writable_bytes(std::span(&message, 1)), fds, deadline);
  if (size != sizeof message || message.magic != kMagic || message.kind != kind)
    return std::nullopt;
  return message;
}

std::string on_rank(int rank, const std::string& what) {
  return "rank " + std::to_string(rank) + ": " + what;
}

Timeout timeout_until(TimePoint deadline) {
  return std::max(std::chrono::ceil<Timeout>(deadline - Clock::now()), Timeout(1));
}

TimePoint with_grace(TimePoint deadline) {
  return deadline > TimePoint::max() - kGrace ? deadline : deadline + kGrace;
}

class Joining {
 public:
  Joining(Store& store, int rank, int size, TimePoint deadline)
      : store_(store), rank_(rank), size_(size), deadline_(deadline), layout_(layout_for(size)) {}

  Joined as_first(const HostIdentity& host);
  Joined as_other(const HostIdentity& host);

 private:
  struct Place {  // of another rank, at rank 0
    Fd socket;
    Message hello;
    Fd memory;
    Fd heap;
  };

  std::string why_not_together(const HostIdentity& host);
  void make_own();
  void gather_hellos(const Fd& listener);
  void take_hello(Fd socket);
  void read_pending(std::vector<Fd>& pending);
  Message decide();
  void welcome_all(const Message& welcome);
  bool collect_ready();
  void open_all(const Message& welcome, std::vector<Fd> fds);
  void open_heaps(std::vector<Fd> fds);
  Message heaps_from_first(const Fd& socket, std::vector<Fd>& heaps);
  void tell_all(const Message& verdict);
  Joined result(const Message& verdict);
  Fd call_first(const std::string& name);
  Message from_first(const Fd& socket, std::vector<Fd>& fds);

  Store& store_;
  const int rank_;
  const int size_;
  const TimePoint deadline_;
  const Layout layout_;
  Id nonce_{};
  std::vector<Place> places_;  // rank 0: of the others; [0] is empty
  Segment own_;
  const Heap* heap_ = nullptr;
  std::string problem_;  // why this rank has no memory to give
  Fd liveness_file_;
  Membership membership_;
  Placement placement_{};
};

// Something that ends the joining for all ranks.
struct Ended {
  Outcome outcome;
  int about;
  std::string text;
};

void Joining::make_own() {
  heap_ = Heap::own();
  try {
    own_ = Segment::create(layout_.segment_bytes);
  } catch (const std::exception& error) {
    problem_ = on_rank(rank_, error.what());
  }
}

void Joining::open_all(const Message& welcome, std::vector<Fd> fds) {
  if (!problem_.empty()) throw std::runtime_error(problem_);
  if (welcome.placement > Placement::crowded || fds.size() != static_cast<std::size_t>(size_) + 1)
    throw std::runtime_error("rank 0 has sent " + std::to_string(fds.size()) + " descriptors");
  membership_.rank = rank_;
  membership_.layout = layout_;
  placement_ = welcome.placement;
  membership_.waiting = policy_for(placement_);
  membership_.liveness = Liveness(std::move(fds[0]), welcome.one_process != 0);
  membership_.liveness.enter(rank_);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      membership_.segments.push_back(std::move(own_));
    } else {
      Fd& memory = fds[static_cast<std::size_t>(rank) + 1];
      membership_.segments.push_back(Segment::open(std::move(memory), layout_.segment_bytes));
    }
    membership_.segments.back().close_fd();
  }
}

// Without them everything works, too.
void Joining::open_heaps(std::vector<Fd> fds) try {
  if (fds.size() != static_cast<std::size_t>(size_)) return;
  std::vector<std::shared_ptr<const HeapView>> heaps;
  heaps.reserve(fds.size());
  for (Fd& fd : fds) heaps.push_back(HeapView::open(std::move(fd)));
  membership_.heaps = std::move(heaps);
} catch (const std::exception&) {
}

Joined Joining::result(const Message& verdict) {
  const std::string text = text_of(verdict);
  switch (verdict.outcome) {
    case Outcome::good: {
      if (verdict.heaps == 0) membership_.heaps.clear();
      Joined joined;
      joined.membership = std::move(membership_);
      joined.tuning = tuning_for(layout_, placement_);
      return joined;
    }
    case Outcome::no:
      return {std::nullopt, {}, text};
    case Outcome::lost:
      throw DistBackendError("setting up shared memory: " + on_rank(verdict.about, text),
                             verdict.about);
    case Outcome::late:
      break;
  }
  throw DistTimeoutError("setting up shared memory: " + on_rank(verdict.about, text),
                         verdict.about);
}

// ---- rank 0 ------------------------------------------------------------------------------------

std::string Joining::why_not_together(const HostIdentity& host) {
  if (!host.why_not.empty()) return on_rank(0, host.why_not);
  const std::vector<std::string> others = collect(store_, "shm/", size_, deadline_);
  for (int rank = 1; rank < size_; ++rank) {
    const std::string& other = others[static_cast<std::size_t>(rank - 1)];
    if (other.starts_with('-')) return on_rank(rank, other.substr(1));
    if (other != host.text)
      return "ranks 0 and " + std::to_string(rank) + " are on different hosts";
  }
  return "";
}

Joined Joining::as_first(const HostIdentity& host) {
  std::string why = why_not_together(host);
  const std::string name = "distrun-" + random_hex();
  const std::string nonce = random_hex();
  nonce_ = id_of(nonce);
  Fd listener;
  try {
    if (why.empty()) listener = listen_unix(name, size_);
  } catch (const std::system_error& error) {
    why = on_rank(0, error.what());
  }
  store_.set("shm/call", why.empty() ? name + nonce : "-" + why);
  if (!why.empty()) return {std::nullopt, {}, why};

  Message verdict;
  verdict.kind = Kind::verdict;
  try {
    make_own();
    gather_hellos(listener);
    welcome_all(decide());
    verdict.heaps = collect_ready() ? 1 : 0;
  } catch (const Ended& ended) {
    verdict.outcome = ended.outcome;
    verdict.about = ended.about;
    set_text(verdict, ended.text);
    // Whoever has not come yet finds nobody there any more, and looks here.
    if (ended.outcome == Outcome::no) store_.set("shm/no", ended.text);
  }
  tell_all(verdict);
  if (verdict.outcome == Outcome::good) {
    for (int rank = 1; rank < size_; ++rank) store_.delete_key("shm/" + std::to_string(rank));
    store_.delete_key("shm/call");
  }
  return result(verdict);
}

void Joining::gather_hellos(const Fd& listener) {
  places_.resize(static_cast<std::size_t>(size_));
  const auto missing = [&] {
    for (int rank = 1; rank < size_; ++rank)
      if (!places_[static_cast<std::size_t>(rank)].socket) return rank;
    return 0;
  };
  std::vector<Fd> pending;  // connected, and have said nothing yet
  while (const int rank = missing()) {
    std::vector<pollfd> polled{{listener.get(), POLLIN, 0}};
    for (const Fd& socket : pending) polled.push_back({socket.get(), POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(kLookEvery.count()));
    if (ready > 0) {
      read_pending(pending);
      while (auto socket = accept_unix(listener, TimePoint())) {
        if (uid_of_peer(*socket) == ::geteuid()) pending.push_back(std::move(*socket));
        if (pending.size() > 2 * static_cast<std::size_t>(size_)) pending.erase(pending.begin());
      }
      continue;
    }
    if (store_.check({"shm/refused"})) throw Ended{Outcome::no, 0, store_.get("shm/refused")};
    if (Clock::now() >= deadline_)
      throw Ended{Outcome::late, rank, "it has not come by the deadline"};
  }
}

void Joining::read_pending(std::vector<Fd>& pending) {
  std::vector<Fd> silent;
  for (Fd& socket : pending) {
    pollfd polled{socket.get(), POLLIN, 0};
    if (::poll(&polled, 1, 0) == 1)
      take_hello(std::move(socket));
    else
      silent.push_back(std::move(socket));
  }
  pending = std::move(silent);
}

// Whoever does not know the number is nobody of ours: it is turned away, and nothing else happens.
void Joining::take_hello(Fd socket) try {
  std::vector<Fd> fds;
  const auto hello = receive(socket, Kind::hello, fds, Clock::now());
  if (!hello || hello->nonce != nonce_ || hello->rank < 1 || hello->rank >= size_) return;
  Place& place = places_[static_cast<std::size_t>(hello->rank)];
  if (place.socket || fds.size() > 2) return;
  place.hello = *hello;
  if (!fds.empty()) place.memory = std::move(fds[0]);
  if (fds.size() == 2) place.heap = std::move(fds[1]);
  place.socket = std::move(socket);
} catch (const std::system_error&) {
}

// The welcome for all: how to go about it.
Message Joining::decide() {
  Message welcome;
  welcome.kind = Kind::welcome;
  std::vector<CpuSet> cpus{usable_cpus()};
  std::string why = problem_;
  std::set<Id> processes{this_process()};
  for (int rank = 1; rank < size_; ++rank) {
    const Place& place = places_[static_cast<std::size_t>(rank)];
    if (why.empty()) why = text_of(place.hello);
    if (why.empty() && !place.memory) why = on_rank(rank, "it has sent no memory");
    processes.insert(place.hello.process);
    cpus.push_back(cpus_of(place.hello));
  }
  const auto has_none = [](const Place& place) { return place.socket && !place.heap; };
  welcome.heaps = heap_ != nullptr && std::ranges::none_of(places_, has_none) ? 1 : 0;
  welcome.one_process = processes.size() == 1 ? 1 : 0;
  // A process that closes one of two files of its locks would lose both.
  if (why.empty() && processes.size() > 1 && processes.size() < static_cast<std::size_t>(size_))
    why = "some ranks are threads of one process, and some are not";
  try {
    if (why.empty()) liveness_file_ = Liveness::make_file();
  } catch (const std::system_error& error) {
    why = on_rank(0, error.what());
  }
  welcome.placement = placement_of(cpus);
  if (!why.empty()) throw Ended{Outcome::no, 0, why};
  return welcome;
}

void Joining::welcome_all(const Message& welcome) {
  std::vector<int> fds{liveness_file_.get(), own_.fd()};
  std::vector<int> heaps{heap_ != nullptr ? heap_->reader() : -1};
  Message second = welcome;
  second.kind = Kind::heaps;
  for (int rank = 1; rank < size_; ++rank) {
    fds.push_back(places_[static_cast<std::size_t>(rank)].memory.get());
    heaps.push_back(places_[static_cast<std::size_t>(rank)].heap.get());
  }
  for (int rank = 1; rank < size_; ++rank) {
    const Fd& socket = places_[static_cast<std::size_t>(rank)].socket;
    try {
      send(socket, welcome, fds, deadline_);
      if (welcome.heaps != 0) send(socket, second, heaps, deadline_);
    } catch (const std::system_error& error) {
      throw Ended{Outcome::lost, rank, error.what()};
    }
  }
  std::vector<Fd> mine;
  mine.push_back(std::move(liveness_file_));
  mine.emplace_back();
  for (int rank = 1; rank < size_; ++rank)
    mine.push_back(std::move(places_[static_cast<std::size_t>(rank)].memory));
  try {
    open_all(welcome, std::move(mine));
  } catch (const std::exception& error) {
    problem_ = on_rank(0, error.what());
  }
  if (welcome.heaps == 0) return;
  std::vector<Fd> its;
  its.emplace_back(::fcntl(heap_->reader(), F_DUPFD_CLOEXEC, 0));
  for (int rank = 1; rank < size_; ++rank)
    its.push_back(std::move(places_[static_cast<std::size_t>(rank)].heap));
  open_heaps(std::move(its));
}

// True if every rank has everyone's heap.
bool Joining::collect_ready() {
  bool heaps = !membership_.heaps.empty();
  std::string why = problem_;
  for (int rank = 1; rank < size_; ++rank) {
    try {
      std::vector<Fd> none;
      const auto ready =
          receive(places_[static_cast<std::size_t>(rank)].socket, Kind::ready, none, deadline_);
      if (!ready) throw Ended{Outcome::lost, rank, "it is gone"};
      if (why.empty()) why = text_of(*ready);
      heaps = heaps && ready->heaps != 0;
    } catch (const std::system_error& error) {
      const bool late = error.code().value() == ETIMEDOUT;
      throw Ended{late ? Outcome::late : Outcome::lost, rank, error.what()};
    }
  }
  if (!why.empty()) throw Ended{Outcome::no, 0, why};
  return heaps;
}

void Joining::tell_all(const Message& verdict) {
  for (const Place& place : places_) {
    try {
      if (place.socket) send(place.socket, verdict, {}, Clock::now() + kGrace);
    } catch (const std::system_error&) {
      // It is gone, and the others have been told.
    }
  }
}

// ---- the others --------------------------------------------------------------------------------

Joined Joining::as_other(const HostIdentity& host) {
  store_.set("shm/" + std::to_string(rank_), host.text.empty() ? "-" + host.why_not : host.text);
  store_.wait({"shm/call"}, timeout_until(deadline_));
  const std::string call = store_.get("shm/call");
  if (call.starts_with('-')) return {std::nullopt, {}, call.substr(1)};
  const std::size_t name_size = call.size() - std::min(call.size(), Id().size());

  Message hello;
  hello.kind = Kind::hello;
  hello.rank = rank_;
  hello.nonce = id_of(std::string_view(call).substr(name_size));
  hello.process = this_process();
  set_cpus(hello, usable_cpus());
  make_own();
  set_text(hello, problem_);

  Fd socket;
  try {
    socket = call_first(call.substr(0, name_size));
  } catch (const std::exception& error) {
    const std::string why = on_rank(rank_, error.what());
    store_.set("shm/refused", why);
    return {std::nullopt, {}, why};
  }
  std::vector<int> memory;
  if (problem_.empty()) memory.push_back(own_.fd());
  if (problem_.empty() && heap_ != nullptr) memory.push_back(heap_->reader());
  std::vector<Fd> fds;
  Message message;
  try {
    send(socket, hello, memory, deadline_);
    message = from_first(socket, fds);
    if (message.kind == Kind::welcome) {
      Message ready;
      ready.kind = Kind::ready;
      try {
        open_all(message, std::move(fds));
      } catch (const std::exception& error) {
        set_text(ready, on_rank(rank_, error.what()));
      }
      if (message.heaps != 0) {
        std::vector<Fd> heaps;
        const Message second = heaps_from_first(socket, heaps);
        if (second.kind == Kind::verdict) return result(second);
        open_heaps(std::move(heaps));
      }
      ready.heaps = membership_.heaps.empty() ? 0 : 1;
      send(socket, ready, {}, deadline_);
      message = from_first(socket, fds);
    }
    if (message.kind == Kind::verdict) return result(message);
  } catch (const std::system_error& error) {
    if (error.code().value() == ETIMEDOUT)
      throw DistTimeoutError("setting up shared memory: no word from rank 0 by the deadline", 0);
  }
  // It has closed, perhaps before it had seen this rank.
  if (store_.check({"shm/no"})) return {std::nullopt, {}, store_.get("shm/no")};
  throw DistBackendError("setting up shared memory: rank 0 is gone", 0);
}

Fd Joining::call_first(const std::string& name) {
  Fd socket = connect_unix(name, deadline_);
  if (uid_of_peer(socket) != ::geteuid())
    throw std::runtime_error("the socket of rank 0 is another user's");
  return socket;
}

// A message that is none: the other end has closed.
Message Joining::from_first(const Fd& socket, std::vector<Fd>& fds) {
  Message message;
  std::size_t size = 0;
  try {
    size = receive_message(socket, std::as_writable_bytes(std::span(&message, 1)), fds,
                           with_grace(deadline_));
  } catch (const std::system_error& error) {
    if (error.code().value() != EMFILE) throw;
    size = sizeof message;  // it is there, but not its descriptors
    problem_ = error.what();
  }
  if (size != sizeof message || message.magic != kMagic) message.kind = Kind::hello;
  return message;
}

// None if they are more than this process may have open.
Message Joining::heaps_from_first(const Fd& socket, std::vector<Fd>& heaps) {
  const std::string before = problem_;
  const Message message = from_first(socket, heaps);
  problem_ = before;
  return message;
}

}  // namespace

Joined join(Store& store, int rank, int size, const HostIdentity& host, TimePoint deadline) {
  if (size > kMaxRanks)
    return {std::nullopt,
            {},
            std::to_string(size) + " ranks are more than " + std::to_string(kMaxRanks) +
                ", the most that can share memory"};
  Joining joining(store, rank, size, deadline);
  return rank == 0 ? joining.as_first(host) : joining.as_other(host);
}

}  // namespace distrun::shm
