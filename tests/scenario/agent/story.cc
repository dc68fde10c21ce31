#include "tests/scenario/agent/story.h"

#include "agent/core/invariants.h"
#include "tests/sim/transcript.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <sstream>
#include <stdexcept>

namespace distrun::scenario {

using namespace agent;

namespace {

// Thrown for a line that cannot be understood; tell() makes it the answer.
struct Nonsense : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::vector<std::string> split(const std::string& line, const std::string& separators) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(separators, at)) != std::string::npos) {
    const auto end = std::min(line.find_first_of(separators, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

int number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw Nonsense("not a number: " + std::string(text));
  }
  return value;
}

Duration duration(std::string_view text) {
  const auto unit = text.find_first_not_of("0123456789");
  if (unit == std::string_view::npos) throw Nonsense("no unit: " + std::string(text));
  const int value = number(text.substr(0, unit));
  if (text.substr(unit) == "ms") return std::chrono::milliseconds(value);
  if (text.substr(unit) == "s") return std::chrono::seconds(value);
  throw Nonsense("not ms or s: " + std::string(text));
}

int signal_number(const std::string& name) {
  for (int signo = 1; signo < 32; ++signo) {
    if (signal_name(signo) == name) return signo;
  }
  throw Nonsense("no such signal: " + name);
}

int errno_number(const std::string& name) {
  if (name == "ENOENT") return ENOENT;
  if (name == "EACCES") return EACCES;
  if (name == "EAGAIN") return EAGAIN;
  if (name == "EMFILE") return EMFILE;
  if (name == "EPERM") return EPERM;
  throw Nonsense("no such errno here: " + name);
}

// log-file, parent-death-signal…: the stage's text with dashes.
ExecStage stage(const std::string& name) {
  for (std::size_t i = 0; i < kExecStageTexts.size(); ++i) {
    std::string text(kExecStageTexts[i]);
    std::replace(text.begin(), text.end(), ' ', '-');
    if (text == name) return static_cast<ExecStage>(i);
  }
  throw Nonsense("no such stage: " + name);
}

// 3, SIGTERM, SIGSEGV+core, SIGKILL+oom
ExitStatus status(const std::string& text) {
  if (text.find_first_not_of("0123456789") == std::string::npos) return ExitedWith{number(text)};
  const auto parts = split(text, "+");
  KilledBy killed{signal_number(parts[0]), false, false};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "core") {
      killed.core_dumped = true;
    } else if (parts[i] == "oom") {
      killed.oom_killed = true;
    } else {
      throw Nonsense("not core or oom: " + parts[i]);
    }
  }
  return killed;
}

JobResult job_result(const std::string& name) {
  if (name == "succeeded") return JobResult::succeeded;
  if (name == "failed") return JobResult::failed;
  throw Nonsense("not succeeded or failed: " + name);
}

RoundError round_error(const std::string& name) {
  if (name == "timed-out") return RoundError::timed_out;
  if (name == "closed") return RoundError::closed;
  if (name == "refused") return RoundError::refused;
  if (name == "no-store") return RoundError::no_store;
  throw Nonsense("no such error: " + name);
}

// name=value words behind the command.
std::map<std::string, std::string> settings(const std::vector<std::string>& words) {
  std::map<std::string, std::string> found;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    if (equals == std::string::npos) throw Nonsense("not name=value: " + words[i]);
    found[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  return found;
}

const std::string& word(const std::vector<std::string>& words, std::size_t i) {
  if (i >= words.size()) throw Nonsense("something is missing behind: " + words.back());
  return words[i];
}

}  // namespace

std::string Story::tell(const std::string& line) {
  command_ = line;
  const Words words = split(line, " ");
  try {
    return obey(words);
  } catch (const Nonsense& nonsense) {
    broken_.push_back(line + ": " + nonsense.what());
    return std::string("error: ") + nonsense.what() + "\n";
  }
}

std::string Story::obey(const Words& words) {
  const std::string& command = word(words, 0);
  if (command == "agent") {
    AgentLimits limits;
    for (const auto& [name, value] : settings(words)) {
      if (name == "nproc") {
        limits.nproc = number(value);
      } else if (name == "grace") {
        limits.grace = duration(value);
      } else if (name == "repeated-term") {
        limits.repeated_term_is_final = value == "final";
      } else {
        throw Nonsense("no such setting: " + name);
      }
    }
    agent_.emplace(limits);
    return {};
  }
  if (!agent_) throw Nonsense("first comes: agent nproc=…");
  if (command == "begin") return feed(Begin{});
  if (command == "welcome") return welcome(words);
  if (command == "no-round") {
    return feed(RoundFailed{round_error(word(words, 1)), rest(words, 2)});
  }
  if (command == "job-over") {
    return feed(JobOver{job_result(word(words, 1)), number(word(words, 2)), rest(words, 3),
                        agent_->restarts(), report_});
  }
  if (command == "report") {
    report_ = rest(words, 1);
    return {};
  }
  if (command == "disband") return feed(Disband{generation(), rest(words, 1)});
  if (command == "disband-round") {
    return feed(Disband{Generation{number(word(words, 1))}, rest(words, 2)});
  }
  if (command == "operator") return feed(StopRequested{signal_number(word(words, 1))});
  if (command == "nobody-left") return feed(StopRequested{SIGTERM, false});
  if (command == "notice") return feed(NoticeSignal{signal_number(word(words, 1))});
  if (command == "spawned") return spawned(words);
  if (command == "not-spawned") {
    const LocalRank local_rank{number(word(words, 1))};
    if (!spawn_ || spawn_->local_rank != local_rank) throw Nonsense("no such spawn is out");
    spawn_.reset();
    return feed(
        SpawnFailed{generation(), local_rank, stage(word(words, 2)), errno_number(word(words, 3))});
  }
  if (command == "exited") return exited(words);
  if (command == "leftovers-gone") {
    const auto look = settings(words);
    const int which = look.contains("look") ? number(look.at("look")) : look_;
    return feed(LeftoversGone{generation(), which});
  }
  if (command == "after") return after(duration(word(words, 1)));
  if (command == "running") return running();
  throw Nonsense("no such command: " + command);
}

std::string Story::feed(const Event& event) {
  const AgentState before = agent_->state();
  const Effects effects = agent_->handle(event, now_);
  const AgentState state = agent_->state();
  for (const std::string& sentence :
       {broken_step(before, state, effects, now_), broken_invariant(state, agent_->limits())}) {
    if (!sentence.empty()) broken_.push_back(command_ + ": broken: " + sentence);
  }
  std::string answer;
  for (const Effect& effect : effects) {
    if (const auto* spawn = std::get_if<Spawn>(&effect)) spawn_ = *spawn;
    if (const auto* request = std::get_if<StopLeftovers>(&effect)) look_ = request->request;
    answer += sim::to_line(effect) + "\n";
  }
  if (sim::phases(before) != sim::phases(state)) answer += "[" + sim::phases(state) + "]\n";
  return answer;
}

std::string Story::welcome(const Words& words) {
  Assignment assignment;
  assignment.generation = Generation{rounds_++};
  assignment.world_size = agent_->limits().nproc;
  // The rendezvous counts a restart after a failure here, unless told that it was elsewhere.
  assignment.restart_count = agent_->restarts() + (agent_->group().first_failure ? 1 : 0);
  for (const auto& [name, value] : settings(words)) {
    if (name == "round") {
      assignment.generation = Generation{number(value)};
      rounds_ = number(value) + 1;
    } else if (name == "base") {
      assignment.base_rank = Rank{number(value)};
    } else if (name == "world") {
      assignment.world_size = number(value);
    } else if (name == "nodes") {
      assignment.node_count = number(value);
    } else if (name == "restarts") {
      assignment.restart_count = number(value);
    } else {
      throw Nonsense("no such setting: " + name);
    }
  }
  return feed(Welcome{assignment});
}

std::string Story::spawned(const Words& words) {
  const bool every = words.size() == 2 && words[1] == "all";
  std::string answer;
  std::size_t next = 1;
  while (every ? spawn_.has_value() : next < words.size()) {
    if (!spawn_) throw Nonsense("no spawn is out");
    const LocalRank local_rank = every ? spawn_->local_rank : LocalRank{number(words[next])};
    if (spawn_->local_rank != local_rank) throw Nonsense("no such spawn is out");
    spawn_.reset();
    const int pid = 100 * rounds_ + local_rank.value;
    answer += feed(SpawnDone{generation(), local_rank, pid});
    ++next;
  }
  return answer;
}

// The uneventful beginning of many stories, without its words.
std::string Story::running() {
  feed(Begin{});
  welcome({"welcome"});
  spawned({"spawned", "all"});
  return "[" + sim::phases(agent_->state()) + "]\n";
}

std::string Story::exited(const Words& words) {
  Exited event{generation(), {}};
  for (std::size_t i = 1; i < words.size(); i += 2) {
    std::string text = word(words, i + 1);
    if (text.back() == ',') text.pop_back();
    event.exits.push_back({LocalRank{number(words[i])}, status(text)});
  }
  return feed(event);
}

std::string Story::after(Duration duration) {
  const TimePoint end = now_ + duration;
  std::string answer;
  while (true) {
    const auto deadline = agent_->next_deadline();
    if (!deadline || *deadline > end) break;
    now_ = std::max(now_, *deadline);
    answer += "at " + duration_text(now_ - start_) + ":\n" + feed(Tick{});
  }
  now_ = end;
  return answer;
}

std::string Story::rest(const Words& words, std::size_t from) const {
  std::string text;
  for (std::size_t i = from; i < words.size(); ++i) text += (i > from ? " " : "") + words[i];
  return text;
}

Generation Story::generation() const {
  const auto assignment = agent_->state().assignment;
  if (!assignment) throw Nonsense("there was no round yet");
  return assignment->generation;
}

}  // namespace distrun::scenario
