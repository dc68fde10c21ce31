#include "rendezvous/server/event_file.h"

#include "rendezvous/protocol/fields.h"
#include "runtime/base/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <map>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace distrun::rendezvous {
namespace {

constexpr int kFormat = 1;
// Beyond so many tokens all further ones look alike; there are no more jobs than that.
constexpr std::size_t kMaxTokens = 65'536;

// In the order of the enumerators, and of the alternatives of Event.
constexpr std::array<std::string_view, 11> kHappenings{"join",    "reattach", "refuse", "seal",
                                                       "failure", "leave",    "loss",   "disband",
                                                       "restart", "takeover", "over"};
constexpr std::array<std::string_view, 4> kInputs{"received", "closed", "reached_at", "tick"};
constexpr std::array<std::string_view, 3> kRules{"majority", "any", "never"};
static_assert(std::variant_size_v<Event> == kInputs.size());

// An AgentMessage as an object of its own, with its type first.
struct Enclosed {
  AgentMessage message;
};
struct ShownLimits {
  CoordinatorLimits limits;
};
struct ShownAuthority {
  Authority authority;
};

void fields(FieldWriter& w, const Enclosed& enclosed) {
  const std::string_view type = kAgentTypes[enclosed.message.index()];
  w.text("type", type, type.size(), Text::name);
  std::visit([&w](const auto& message) { fields(w, message); }, enclosed.message);
}

template <std::size_t I = 0>
void read_message(FieldReader& r, std::size_t type, AgentMessage& message) {
  if (I == type) return fields(r, message.emplace<I>());
  if constexpr (I + 1 < std::variant_size_v<AgentMessage>) read_message<I + 1>(r, type, message);
}
void fields(FieldReader& r, Enclosed& enclosed) {
  read_message(r, r.index("type", kAgentTypes), enclosed.message);
}

template <class A>
void fields(A& a, Subject<A, ShownLimits>& shown) {
  a.integer("max_jobs", shown.limits.max_jobs, 0, kMaxInt);
  a.duration("keep_us", shown.limits.keep);
  a.text("only_job", shown.limits.only_job, kMaxName, Text::name);
}

template <class A>
void fields(A& a, Subject<A, ShownAuthority>& shown) {
  auto& authority = shown.authority;
  a.maybe("host", authority.host, [&](auto& host) { a.text("host", host, kMaxName, Text::name); });
  a.integer("successor", authority.successor, 0, kMaxInt);
  a.text("elected", authority.elected, kMaxName, Text::name);
  a.choice("rule", authority.rule, kRules);
}

template <class A>
void happening_fields(A& a, Subject<A, Happening>& happening) {
  a.text("job", happening.job, kMaxName, Text::name);
  a.object("round", happening.round);
  a.text("node", happening.node, kMaxName, Text::name);
  a.text("host", happening.host, kMaxName, Text::name);
  a.text("text", happening.text, kMaxWhy, Text::free);
}

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const auto us =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = us / 1'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 24> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::array<char, 16> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>(us % 1'000'000));
  return std::string(day.data()) + fraction.data();
}

std::int64_t nanoseconds(TimePoint at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace

class EventFile::Writer {
 public:
  Writer(std::string path, int fd, std::uintmax_t size, EventFileOptions options)
      : path_(std::move(path)), fd_(fd), size_(size), options_(std::move(options)) {}
  ~Writer() {
    flush();
    ::close(fd_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void start(const CoordinatorLimits& limits, const Authority& authority,
             const std::vector<Record>& records, TimePoint now) {
    FieldWriter w;
    head(w, "start", now);
    w.number("format", kFormat);
    w.object("limits", ShownLimits{limits});
    w.object("authority", ShownAuthority{authority});
    std::vector<Record> shown = records;
    for (Record& record : shown) record.token = pseudonym(record.token);
    w.list("records", shown, shown.size());
    add(w.finish());
  }

  void on_input(const Event& event, TimePoint now) {
    if (is_full(options_.max_bytes, "inputs, so it can be replayed up to here only", now)) return;
    FieldWriter w;
    const std::string_view input = kInputs[event.index()];
    w.text("kind", "input", kMaxName, Text::name);
    w.number("at", nanoseconds(now));
    w.text("input", input, input.size(), Text::name);
    std::visit([&](const auto& e) { put(w, e); }, event);
    add(w.finish());
  }

  void on_happening(const Happening& happening, TimePoint now) {
    if (is_full(2 * options_.max_bytes, "anything", now)) return;
    FieldWriter w;
    head(w, kHappenings[static_cast<std::size_t>(happening.kind)], now);
    happening_fields(w, happening);
    add(w.finish());
  }

 private:
  void head(FieldWriter& w, std::string_view kind, TimePoint now) const {
    w.text("kind", kind, kind.size(), Text::name);
    w.text("time", rfc3339(options_.wall()), kMaxName, Text::name);
    w.number("at", nanoseconds(now));
  }

  void put(FieldWriter& w, const Received& event) {
    w.number("session", event.session.value);
    Enclosed enclosed{event.message};
    if (auto* join = std::get_if<Join>(&enclosed.message)) join->token = pseudonym(join->token);
    w.object("message", enclosed);
  }
  static void put(FieldWriter& w, const Closed& event) { w.number("session", event.session.value); }
  static void put(FieldWriter& w, const ReachedAt& event) {
    w.text("address", event.address, kMaxName, Text::name);
  }
  static void put(FieldWriter& /*w*/, const Tick& /*event*/) {}

  std::string pseudonym(const std::string& token) {
    if (token.empty()) return {};
    const auto known = tokens_.find(token);
    if (known != tokens_.end()) return known->second;
    if (tokens_.size() >= kMaxTokens) return "token-other";
    return tokens_[token] = "token-" + std::to_string(tokens_.size() + 1);
  }

  // Says so once for each of the two bounds.
  bool is_full(std::uintmax_t max, std::string_view what, TimePoint now) {
    if (size_ < max) return false;
    if (bound_said_ >= max) return true;
    bound_said_ = max;
    const std::string why = "the file has grown to " + std::to_string(size_) +
                            " bytes and takes no more of " + std::string(what);
    log::warn(path_ + ": " + why);
    add(gap(why, now));
    return true;
  }

  std::string gap(const std::string& why, TimePoint now) const {
    FieldWriter w;
    head(w, "gap", now);
    w.text("why", why, kMaxWhy, Text::free);
    return w.finish();
  }

  void add(const std::string& line) {
    if (!waiting_.empty()) flush();
    if (waiting_.size() + line.size() > options_.max_waiting && !waiting_.empty()) {
      ++left_out_;
      return;
    }
    if (left_out_ > 0) {
      const auto lines = std::to_string(std::exchange(left_out_, 0));
      waiting_ += gap(lines + " lines could not be written", Clock::now()) + '\n';
    }
    waiting_ += line + '\n';
    flush();
  }

  void flush() {
    std::size_t done = 0;
    while (done < waiting_.size()) {
      const ssize_t n = ::write(fd_, waiting_.data() + done, waiting_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        complain(n < 0 ? errno : EIO);
        break;
      }
      done += static_cast<std::size_t>(n);
    }
    size_ += done;
    waiting_.erase(0, done);
  }

  void complain(int error) {
    if (std::exchange(complained_, true)) return;
    log::warn(os_error(path_ + ": events are not written for now", error).detail);
  }

  const std::string path_;
  const int fd_;
  std::uintmax_t size_;
  const EventFileOptions options_;
  std::map<std::string, std::string> tokens_;
  std::string waiting_;       // whole lines, but for the first, of which a part may be written
  std::size_t left_out_ = 0;  // lines
  std::uintmax_t bound_said_ = 0;
  bool complained_ = false;
};

EventFile::EventFile(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
EventFile::~EventFile() = default;

Result<std::unique_ptr<EventFile>> EventFile::open(const std::string& path,
                                                   EventFileOptions options) {
  // For reading, too: the last byte is looked at, and a pipe that nobody reads yet can be opened
  // and never kills the writer.
  const int fd =
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd < 0) return os_error(path, errno);
  struct stat status {};
  std::uintmax_t size = 0;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    size = static_cast<std::uintmax_t>(status.st_size);
    char last = '\n';
    // The last line of a process that was killed in the middle of it stays, on its own.
    if (size > 0 && ::pread(fd, &last, 1, status.st_size - 1) == 1 && last != '\n') {
      (void)!::write(fd, "\n", 1);
    }
  }
  return std::unique_ptr<EventFile>(
      new EventFile(std::make_unique<Writer>(path, fd, size, std::move(options))));
}

void EventFile::start(const CoordinatorLimits& limits, const Authority& authority,
                      const std::vector<Record>& records, TimePoint now) {
  writer_->start(limits, authority, records, now);
}
void EventFile::on_input(const Event& event, TimePoint now) {
  writer_->on_input(event, now);
}
void EventFile::on_happening(const Happening& happening, TimePoint now) {
  writer_->on_happening(happening, now);
}

// ---- reading -----------------------------------------------------------------------------------

namespace {

TimePoint time_point(FieldReader& r) {
  std::int64_t at = 0;
  r.integer("at", at, 0, kMaxNumber);
  return TimePoint(std::chrono::nanoseconds(at));
}

SessionId session(FieldReader& r) {
  SessionId id;
  r.integer("session", id.value, 0, kMaxInt);
  return id;
}

event_line::Start read_start(FieldReader& r) {
  event_line::Start start;
  int format = 0;
  r.integer("format", format, kFormat, kFormat);
  start.at = time_point(r);
  ShownLimits limits;
  r.object("limits", limits);
  start.limits = std::move(limits.limits);
  ShownAuthority authority;
  r.object("authority", authority);
  start.authority = std::move(authority.authority);
  r.list("records", start.records, static_cast<std::size_t>(kMaxInt));
  return start;
}

event_line::Input read_input(FieldReader& r) {
  event_line::Input input{time_point(r), Tick{}};
  switch (r.index("input", kInputs)) {
    case 0: {
      Enclosed enclosed;
      r.object("message", enclosed);
      input.event = Received{session(r), std::move(enclosed.message)};
      break;
    }
    case 1:
      input.event = Closed{session(r)};
      break;
    case 2: {
      ReachedAt reached;
      r.text("address", reached.address, kMaxName, Text::name);
      input.event = std::move(reached);
      break;
    }
    default:
      break;
  }
  return input;
}

event_line::Happened read_happening(FieldReader& r, std::size_t kind) {
  event_line::Happened happened;
  happened.at = time_point(r);
  r.text("time", happened.time, kMaxName, Text::name);
  happened.happening.kind = static_cast<HappeningKind>(kind);
  happening_fields(r, happened.happening);
  return happened;
}

}  // namespace

Result<EventLine> parse_event_line(std::string_view line) {
  constexpr std::size_t kOthers = 3;
  std::array<std::string_view, kOthers + kHappenings.size()> kinds{"start", "input", "gap"};
  std::copy(kHappenings.begin(), kHappenings.end(), kinds.begin() + kOthers);

  FieldReader r(line);
  const std::size_t kind = r.index("kind", kinds);
  if (r.error()) return *r.error();
  EventLine parsed;
  if (kind == 0) {
    parsed = read_start(r);
  } else if (kind == 1) {
    parsed = read_input(r);
  } else if (kind == 2) {
    event_line::Gap gap;
    r.text("why", gap.why, kMaxWhy, Text::free);
    parsed = std::move(gap);
  } else {
    parsed = read_happening(r, kind - kOthers);
  }
  if (r.error()) return *r.error();
  return parsed;
}

}  // namespace distrun::rendezvous
