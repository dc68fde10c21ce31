#include "tests/launcher/options_transcript.h"

#include "launcher/text.h"

#include <sstream>
#include <vector>

namespace distrun::launcher {
namespace {

std::string seconds(Duration duration) {
  std::ostringstream out;
  out << std::chrono::duration<double>(duration).count() << " s";
  return out.str();
}

std::string digit(agent::StreamSet streams) {
  return std::to_string((streams.out ? 1 : 0) + (streams.err ? 2 : 0));
}

std::string describe(const Redirects& redirects) {
  std::string text = "all=" + digit(redirects.all);
  for (const auto& [rank, streams] : redirects.by_rank) {
    text += " " + std::to_string(rank) + "=" + digit(streams);
  }
  return text;
}

std::string describe(const Nproc& nproc) {
  switch (nproc.kind) {
    case Nproc::Kind::count:
      return std::to_string(nproc.count);
    case Nproc::Kind::cpu:
      return "one per CPU";
    case Nproc::Kind::gpu:
      return "one per GPU";
    case Nproc::Kind::automatic:
      return "one per GPU, else CPU";
  }
  return "?";
}

class Words {
 public:
  void add(const std::string& word) {
    if (!text_.empty()) text_ += ", ";
    text_ += word;
  }
  template <class T>
  void add_if(bool different, const std::string& name, const T& value) {
    std::ostringstream out;
    out << name << ' ' << value;
    if (different) add(out.str());
  }
  void add_if(bool different, const std::string& name) {
    if (different) add(name);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_conf(Words& words, const RdzvConf& c) {
  const RdzvConf d;
  words.add_if(c.timeout != d.timeout, "timeout", seconds(c.timeout));
  words.add_if(c.join_timeout != d.join_timeout, "join_timeout", seconds(c.join_timeout));
  words.add_if(c.read_timeout != d.read_timeout, "read_timeout", seconds(c.read_timeout));
  words.add_if(c.is_host.has_value(), "is_host", c.is_host.value_or(false));
  words.add_if(c.store_type != d.store_type, "store_type", c.store_type);
}

std::string shown(const std::string& word) {
  return word.empty() || word.find(' ') != std::string::npos ? "'" + word + "'" : word;
}

template <class List>
std::string listed(const List& list) {
  std::ostringstream out;
  for (const auto& item : list) out << (out.tellp() > 0 ? "|" : "") << item;
  return out.str();
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;
  bool any = false;
  for (const char c : line) {
    if (c == '\'') {
      open = !open;
      any = true;
    } else if (c == ' ' && !open) {
      if (any) words.push_back(std::move(word));
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(std::move(word));
  return words;
}

std::string answer(const std::string& line) {
  Environment environment;
  std::vector<std::string> arguments;
  bool typed = false;
  for (std::string& word : words_of(line)) {
    if (typed) {
      arguments.push_back(std::move(word));
    } else if (word == "$") {
      typed = true;
    } else {
      environment.emplace(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
    }
  }
  const std::vector<std::string_view> views(arguments.begin(), arguments.end());
  const auto options = parse_options(views, environment);
  return options ? describe(*options) : "error " + options.error().detail;
}

}  // namespace

std::string describe(const Options& o) {
  const Options d;
  if (o.action == Action::help) return "print the help";
  if (o.action == Action::version) return "print the version";
  Words words;
  words.add_if(o.min_nodes != 1 || o.max_nodes != 1, "nodes",
               std::to_string(o.min_nodes) + ":" + std::to_string(o.max_nodes));
  words.add_if(o.nproc != d.nproc, "workers", describe(o.nproc));
  words.add_if(o.backend != d.backend,
               o.backend == Backend::etcd ? "backend etcd" : "backend c10d");
  if (o.endpoint) {
    words.add("endpoint host " + o.endpoint->host +
              (o.endpoint->port ? " port " + std::to_string(*o.endpoint->port) : ""));
  }
  if (o.rdzv_id) words.add("id " + shown(*o.rdzv_id));
  add_conf(words, o.rdzv_conf);
  words.add_if(o.standalone, "standalone");
  words.add_if(o.node_rank.value_or(0) != 0, "node rank", o.node_rank.value_or(0));
  words.add_if(o.master_addr.has_value(), "master address", o.master_addr.value_or(""));
  words.add_if(o.master_port.has_value(), "master port", o.master_port.value_or(0));
  words.add_if(o.local_addr.has_value(), "local address", o.local_addr.value_or(""));
  if (o.start_timeout) words.add("start timeout " + seconds(*o.start_timeout));
  words.add_if(!o.events_file.empty(), "events file", o.events_file);
  std::vector<std::string> hosts;
  for (const Host& host : o.hosts) {
    hosts.push_back(host.name + (host.workers ? "=" + std::to_string(*host.workers) : ""));
  }
  words.add_if(!hosts.empty(), "hosts", listed(hosts));
  words.add_if(!o.hostfile.empty(), "hostfile", o.hostfile);
  words.add_if(o.ssh_command != d.ssh_command, "ssh command", shown(o.ssh_command));
  words.add_if(!o.remote_distrun.empty(), "remote distrun", o.remote_distrun);
  words.add_if(!o.env.empty(), "variables", listed(o.env));
  words.add_if(o.host_prefix, "host prefix");
  words.add_if(o.role != d.role, "role", shown(o.role));
  words.add_if(o.max_restarts != 0, "restarts", o.max_restarts);
  if (o.shutdown_timeout) words.add("shutdown timeout " + seconds(*o.shutdown_timeout));
  words.add_if(o.signals_to_handle != d.signals_to_handle, "signals", shown(o.signals_to_handle));
  words.add_if(o.virtual_local_rank, "virtual local rank");
  if (o.numa_binding) words.add("bind to " + std::string(to_string(*o.numa_binding)));
  words.add_if(!o.log_dir.empty(), "log folder", o.log_dir);
  words.add_if(o.redirects != d.redirects, "redirects", describe(o.redirects));
  words.add_if(o.tee != d.tee, "tee", describe(o.tee));
  if (o.local_ranks_filter) words.add("console ranks " + listed(*o.local_ranks_filter));
  if (o.prefix_template) words.add("prefix '" + *o.prefix_template + "'");
  words.add_if(!o.stdout_filters.empty(), "stdout filters", listed(o.stdout_filters));
  words.add_if(!o.stderr_filters.empty(), "stderr filters", listed(o.stderr_filters));
  words.add_if(o.event_log_handler != "null", "event handler", o.event_log_handler);
  words.add_if(!o.logs_specs.empty(), "logs specs", o.logs_specs);
  words.add_if(o.log_format == log::Format::json, "log json");
  words.add_if(o.verbose, "verbose");
  words.add_if(o.quiet, "quiet");
  words.add_if(o.console == Console::inherit, "console inherit");
  words.add_if(o.console == Console::lines, "console lines");
  words.add_if(o.run_path, "run path");
  words.add_if(o.no_python, "no python");
  std::string run = o.module ? "run module " : "run ";
  run += shown(o.target);
  for (const std::string& argument : o.target_arguments) run += " " + shown(argument);
  words.add(run);
  return words.text();
}

std::string replay(const std::string& transcript) {
  std::string out;
  for (const std::string_view line : split(trim(transcript), '\n')) {
    if (!line.empty() && line[0] != '#' && line[0] != '>') continue;  // an old answer
    out += std::string(line) + "\n";
    if (line.starts_with("> ")) out += answer(std::string(line.substr(2))) + "\n";
  }
  return out;
}

}  // namespace distrun::launcher
