#include "tests/scenario/rendezvous/rendezvous_story.h"

#include <charconv>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace distrun::scenario {

using namespace rendezvous;

namespace {

// Thrown for a line that cannot be understood; tell() makes it the answer.
struct Nonsense : std::runtime_error {
  using std::runtime_error::runtime_error;
};

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

int setting(const std::map<std::string, std::string>& settings, const std::string& name,
            int otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() ? otherwise : number(found->second);
}

std::string rest(const std::vector<std::string>& words, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < words.size(); ++i) text += (i > from ? " " : "") + words[i];
  return text;
}

std::string text(const Welcome& welcome) {
  return "round " + std::to_string(welcome.round.generation.value) +
         (welcome.round.epoch == 0 ? "" : " of epoch " + std::to_string(welcome.round.epoch)) +
         ": node rank " + std::to_string(welcome.node_rank.value) + " of " +
         std::to_string(welcome.node_count) + ", ranks from " +
         std::to_string(welcome.base_rank.value) + " of " + std::to_string(welcome.world_size) +
         ", store " + welcome.master_addr + ", restarts " + std::to_string(welcome.restart_count);
}

std::string text(const Waiting& waiting) {
  std::string text = waiting.spare ? "spare: " : waiting.finished ? "finished: " : "waiting: ";
  text += std::to_string(waiting.present) + " of " + std::to_string(waiting.min_nodes) + ":" +
          std::to_string(waiting.max_nodes) + " (";
  for (std::size_t i = 0; i < waiting.hosts.size(); ++i) {
    text += (i > 0 ? ", " : "") + waiting.hosts[i];
  }
  text += ")";
  if (waiting.sealing_in) text += ", sealing in " + duration_text(*waiting.sealing_in);
  if (waiting.giving_up_in) text += ", giving up in " + duration_text(*waiting.giving_up_in);
  if (!waiting.why.empty()) text += ", " + waiting.why;
  return text;
}

std::string text(const Disband& disband) {
  return "stop round " + std::to_string(disband.round.generation.value) + ": " + disband.why +
         (disband.heir.empty() ? "" : "; heir " + disband.heir);
}

std::string text(const Over& over) {
  return "over, exit " + std::to_string(over.exit_code) + ", restarts " +
         std::to_string(over.restarts) + ": " + over.why +
         (over.report.empty() ? "" : " [" + over.report + "]");
}

std::string text(const Refused& refused) {
  return "refused (" + std::string(to_string(refused.code)) + "): " + refused.why;
}

std::string text(const Ping&) {
  return {};
}

}  // namespace

std::string RendezvousStory::tell(const std::string& line) {
  std::vector<std::string> words;
  Settings settings;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      words.push_back(word);
    } else {
      settings[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  try {
    return obey(words.at(0), words, settings);
  } catch (const std::exception& nonsense) {
    broken_.push_back(line + ": " + nonsense.what());
    return std::string("error: ") + nonsense.what() + "\n";
  }
}

std::string RendezvousStory::obey(const std::string& verb, const std::vector<std::string>& words,
                                  const Settings& settings) {
  if (verb == "job") return begin(settings);
  if (!core_) throw Nonsense("first comes: job min=… max=…");
  if (verb == "after") return after(duration(words.at(1)));
  if (verb == "asleep") {
    now_ += duration(words.at(1));
    return feed(Tick{});
  }
  const std::string& host = words.at(1);
  if (verb == "join") return join(host, settings);
  const SessionId who = session(host);
  if (verb == "failed") return failed(host, words, settings);
  if (verb == "closed") {
    sessions_.erase(host);
    return feed(Closed{who});
  }
  if (verb == "leaves") return feed(Received{who, Leave{rest(words, 2)}});
  if (verb == "silent") {
    silent_.insert(who);
    return {};
  }
  Outcome outcome;
  outcome.round = core_->record().last;
  if (verb == "succeeded") {
    outcome.result = RoundResult::succeeded;
  } else if (verb != "stopped") {
    throw Nonsense("no such command: " + verb);
  }
  outcome.remains = settings.count("remains") != 0;
  return feed(Received{who, Ended{outcome, 1}});
}

std::string RendezvousStory::begin(const Settings& settings) {
  terms_ = {};
  terms_.min_nodes = setting(settings, "min", 1);
  terms_.max_nodes = setting(settings, "max", 1);
  terms_.max_restarts = setting(settings, "restarts", 0);
  terms_.command = "train.py";
  terms_.fixed_ranks = settings.count("static") != 0;
  Authority authority;
  if (settings.count("hosted") != 0) {
    hosting_ = settings.at("hosted");
    authority.host = hosting_ + ".1";
    authority.successor = setting(settings, "successor", 0);
  }
  if (settings.count("round") == 0) {
    Join founder;
    founder.job = "job";
    founder.terms = terms_;
    core_.emplace(founder, authority);
  } else {
    Record record;
    record.job = "job";
    record.terms = terms_;
    record.last = {0, Generation(number(settings.at("round")))};
    record.node_count = setting(settings, "of", 1);
    core_.emplace(record, authority, now_);
  }
  return {};
}

std::string RendezvousStory::join(const std::string& host, const Settings& settings) {
  Join join;
  join.job = "job";
  join.node = host + ".1";
  join.host = host;
  join.address = host;
  join.store_port = 1;
  join.nproc = setting(settings, "nproc", 1);
  join.hosts = host == hosting_;
  join.terms = terms_;
  join.version = setting(settings, "version", kProtocolVersion);
  if (settings.count("rank") != 0) join.node_rank = NodeRank(number(settings.at("rank")));
  if (settings.count("command") != 0) join.terms.command = settings.at("command");
  if (settings.count("round") != 0) {
    Join::Held held;
    held.round = {0, Generation(number(settings.at("round")))};
    held.rank = NodeRank(setting(settings, "had", 0));
    held.node_count = setting(settings, "of", 1);
    join.held = held;
  }
  const SessionId who(++last_session_);
  sessions_[host] = who;
  hosts_[who] = host;
  return feed(Received{who, join});
}

std::string RendezvousStory::failed(const std::string& host, const std::vector<std::string>& words,
                                    const Settings& settings) {
  Outcome outcome;
  outcome.round = core_->record().last;
  outcome.result = RoundResult::failed;
  Failure failure;
  failure.host = host;
  failure.rank = Rank(number(words.at(2)));
  failure.exit_code = number(words.at(3));
  failure.status = "exited with status " + words.at(3);
  failure.pid = 100;
  if (settings.count("ago") != 0) failure.age = duration(settings.at("ago"));
  outcome.failure = failure;
  outcome.failed_at_start = settings.count("at_start") != 0;
  outcome.report = "report of " + host;
  const SessionId who = session(host);
  return feed(Received{who, Failed{outcome.round, failure}}) +
         feed(Received{who, Ended{outcome, 1}});
}

std::string RendezvousStory::after(Duration time) {
  std::string answer;
  const TimePoint until = now_ + time;
  while (core_->next_deadline() && *core_->next_deadline() <= until) {
    now_ = std::max(now_, *core_->next_deadline());
    answer += feed(Tick{});
  }
  now_ = until;
  return answer;
}

std::string RendezvousStory::feed(const Event& event) {
  const RoundPhase before = core_->phase();
  std::string answer;
  // Who was told the same is named in one line.
  std::vector<std::pair<std::string, std::string>> told;
  std::vector<std::pair<SessionId, std::uint64_t>> pings;
  for (Effect& effect : core_->handle(event, now_)) {
    if (const auto* send = std::get_if<Send>(&effect)) {
      if (const auto* ping = std::get_if<Ping>(&send->message)) {
        if (silent_.count(send->session) == 0) pings.emplace_back(send->session, ping->number);
        continue;
      }
      const std::string said = std::visit([](const auto& m) { return text(m); }, send->message);
      const std::string host = hosts_[send->session];
      if (!told.empty() && told.back().second == said) {
        told.back().first += ", " + host;
      } else {
        told.emplace_back(host, said);
      }
    } else if (const auto* drop = std::get_if<Drop>(&effect)) {
      const std::string host = hosts_[drop->session];
      if (sessions_.count(host) != 0 && sessions_[host] == drop->session) sessions_.erase(host);
    } else if (const auto* note = std::get_if<Note>(&effect)) {
      answer += std::string(to_string(note->happening.kind)) + ": " + note->happening.text + "\n";
    }
  }
  for (const auto& [host, said] : told) answer += "-> " + host + ": " + said + "\n";
  if (core_->phase() != before) answer += "[" + std::string(to_string(core_->phase())) + "]\n";
  for (const auto& [who, ping] : pings) answer += feed(Received{who, Pong{ping}});
  return answer;
}

SessionId RendezvousStory::session(const std::string& host) const {
  const auto found = sessions_.find(host);
  if (found == sessions_.end()) throw Nonsense(host + " is not here");
  return found->second;
}

}  // namespace distrun::scenario
