#include "agent/process/output.h"

#include "agent/process/last_lines.h"
#include "agent/process/line_prefix.h"
#include "agent/process/log_file_sink.h"
#include "agent/process/log_files.h"
#include "agent/process/worker_stream.h"
#include "runtime/base/check.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

// Of all pipes together, a quarter of what the kernel allows a user (pipe-user-pages-soft): also
// what dead workers can leave for a console that does not read.
constexpr int kPipeBytes = 16 * 1024 * 1024;
constexpr int kLeastPipe = 64 * 1024;
constexpr int kLargestPipe = 1024 * 1024;

constexpr std::array kStreams{Output::Stream::out, Output::Stream::err};

std::size_t index(Output::Stream stream) {
  return stream == Output::Stream::out ? 0 : 1;
}

bool in(StreamSet set, Output::Stream stream) {
  return stream == Output::Stream::out ? set.out : set.err;
}

// One stream of one worker: `piped` if its bytes pass through us, else a file of the child's own,
// or our descriptor.
struct Way {
  std::shared_ptr<WorkerStream> piped;
  std::string file;     // empty: none
  int child_file = -1;  // redirected: open until it was given away
};

struct Worker {
  std::array<Way, 2> ways;
  std::string error_file;
};

std::string temporary_folder(const Spec& spec) {
  for (const auto& [name, value] : spec.environment) {
    if (name == "TMPDIR" && !value.empty()) return value;
  }
  return "/tmp";
}

bool any(const std::vector<StreamSet>& sets) {
  return std::any_of(sets.begin(), sets.end(), [](StreamSet set) { return set.out || set.err; });
}

}  // namespace

struct Output::State : std::enable_shared_from_this<Output::State> {
  State(boost::asio::io_context& io_context, const Spec& the_spec, Console& the_console,
        ConsoleMode console_mode)
      : io(io_context),
        spec(the_spec),
        console(the_console),
        mode(console_mode),
        files(spec.log.base_dir, temporary_folder(spec), spec.run_id),
        loose_error_files(temporary_folder(spec)),
        workers(static_cast<std::size_t>(spec.nproc)) {}

  boost::asio::io_context& io;
  const Spec& spec;
  Console& console;
  ConsoleMode mode;
  LogFiles files;
  LooseErrorFiles loose_error_files;
  int round = 0;  // how many were opened
  std::array<LineFilter, 2> filters;
  std::vector<Worker> workers;
  int next_owner = 0;  // never used twice: an unfinished line of an older worker stays its own
  std::function<void()> drained_call;
  bool check_posted = false;

  Worker& worker(LocalRank local_rank) {
    return workers.at(static_cast<std::size_t>(local_rank.value));
  }
  const Worker& worker(LocalRank local_rank) const {
    return workers.at(static_cast<std::size_t>(local_rank.value));
  }

  bool keeps_files() const;
  int pipe_size() const;
  Result<bool> open_filters();
  Result<int> open_way(Way& way, LocalRank local_rank, Rank rank, Stream stream,
                       const std::string& folder);
  template <class Call>
  void for_each_pipe(Call call);
  bool drained() const;
  void check_drained();
  void close_round();
};

// Whether somebody asked for files.
bool Output::State::keeps_files() const {
  const LogSpec& log = spec.log;
  return !log.base_dir.empty() || any(log.redirects) || any(log.tee) || !log.out_filters.empty() ||
         !log.err_filters.empty();
}

int Output::State::pipe_size() const {
  return std::clamp(kPipeBytes / (2 * std::max(1, spec.nproc)), kLeastPipe, kLargestPipe);
}

template <class Call>
void Output::State::for_each_pipe(Call call) {
  for (Worker& worker : workers) {
    for (Way& way : worker.ways) {
      if (way.piped) call(*way.piped);
    }
  }
}

bool Output::State::drained() const {
  for (const Worker& worker : workers) {
    for (const Way& way : worker.ways) {
      if (way.piped && !way.piped->closed()) return false;
    }
  }
  return console.empty();
}

// By way of the loop: a caller is never called back from inside its own call.
void Output::State::check_drained() {
  if (!drained_call || check_posted || !drained()) return;
  check_posted = true;
  boost::asio::post(io, [self = shared_from_this()] {
    self->check_posted = false;
    if (!self->drained_call || !self->drained()) return;
    const auto call = std::exchange(self->drained_call, {});
    call();
  });
}

void Output::State::close_round() {
  drained_call = {};
  for_each_pipe([](WorkerStream& stream) { stream.close(); });
  for (Worker& worker : workers) {
    for (Way& way : worker.ways) {
      if (way.child_file >= 0) ::close(std::exchange(way.child_file, -1));
    }
  }
  filters = {};
}

Result<bool> Output::State::open_filters() {
  filters[0].words = spec.log.out_filters;
  filters[1].words = spec.log.err_filters;
  static constexpr std::array<std::string_view, 2> kNames{"/filtered_stdout.log",
                                                          "/filtered_stderr.log"};
  for (std::size_t i = 0; i < filters.size(); ++i) {
    if (filters[i].words.empty() || files.disabled()) continue;
    std::string path = files.attempt_folder() + std::string(kNames[i]);
    const auto fd = open_log_file(path);
    if (!fd) return fd.error();
    filters[i].file = LogFileSink(*fd, std::move(path));
  }
  return true;
}

// The descriptor that the child is to have.
Result<int> Output::State::open_way(Way& way, LocalRank local_rank, Rank rank, Stream stream,
                                    const std::string& folder) {
  const auto at = static_cast<std::size_t>(local_rank.value);
  const bool teed = in(spec.log.tee.at(at), stream);
  const bool redirected = in(spec.log.redirects.at(at), stream);
  const bool on_console = spec.log.on_console.at(at);
  way = Way{};

  if (!teed && !redirected && on_console && mode == ConsoleMode::inherit) {
    return stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO;
  }
  LogFileSink file;
  if (teed || redirected) {
    way.file = files.disabled() ? "/dev/null"
                                : folder + (stream == Stream::out ? "/stdout.log" : "/stderr.log");
    const auto fd = open_log_file(way.file);
    if (!fd) return fd.error();
    if (!teed) return way.child_file = *fd;
    file = LogFileSink(*fd, way.file);
  }
  WorkerStream::Ways ways;
  ways.file = std::move(file);
  ways.on_console = on_console;
  ways.stream = stream;
  ways.owner = next_owner++;
  if (teed) {
    ways.prefix =
        line_prefix(spec.log.prefix_template, spec.role, rank, local_rank, spec.host_name);
  }
  LineFilter& filter = filters[index(stream)];
  if (teed && on_console && !filter.words.empty()) ways.filter = &filter;
  way.piped =
      std::make_shared<WorkerStream>(io, console, std::move(ways), [this] { check_drained(); });
  if (auto opened = way.piped->open(pipe_size()); !opened) {
    way.piped.reset();
    return opened.error();
  }
  return way.piped->child_end();
}

Output::Output(boost::asio::io_context& io, const Spec& spec, Console& console, ConsoleMode mode)
    : state_(std::make_shared<State>(io, spec, console, mode)) {
  DISTRUN_CHECK(spec.log.redirects.size() == state_->workers.size());
  DISTRUN_CHECK(spec.log.tee.size() == state_->workers.size());
  DISTRUN_CHECK(spec.log.on_console.size() == state_->workers.size());
  if (mode == ConsoleMode::inherit) console.forbid_status_line();
  console.on_room([state = state_.get()] {
    state->for_each_pipe([](WorkerStream& stream) { stream.resume(); });
  });
  console.on_empty([state = state_.get()] { state->check_drained(); });
}

Output::~Output() {
  state_->console.on_room({});
  state_->console.on_empty({});
  state_->close_round();
}

Result<bool> Output::open_round(int restart_count) {
  state_->close_round();
  for (Worker& worker : state_->workers) worker = Worker{};
  ++state_->round;
  if (!state_->keeps_files()) return true;
  if (auto opened = state_->files.open_attempt(restart_count); !opened) return opened.error();
  return state_->open_filters();
}

Result<ChildStreams> Output::open_streams(LocalRank local_rank, Rank rank) {
  const bool own_folder = state_->keeps_files();
  const auto folder = own_folder ? state_->files.open_rank(local_rank) : std::string();
  if (!folder) return folder.error();
  Worker& worker = state_->worker(local_rank);
  ChildStreams streams;
  for (const Stream stream : kStreams) {
    const auto fd = state_->open_way(worker.ways[index(stream)], local_rank, rank, stream, *folder);
    if (!fd) return fd.error();
    (stream == Stream::out ? streams.out : streams.err) = *fd;
  }
  if (!own_folder) {
    worker.error_file = state_->loose_error_files.path(state_->round, local_rank);
  } else if (!folder->empty()) {
    worker.error_file = *folder + "/error.json";
  }
  streams.error_file = worker.error_file;
  return streams;
}

void Output::close_child_ends(LocalRank local_rank) {
  for (Way& way : state_->worker(local_rank).ways) {
    if (way.piped) way.piped->close_child_end();
    if (way.child_file >= 0) ::close(std::exchange(way.child_file, -1));
  }
}

void Output::worker_exited(LocalRank local_rank) {
  Worker& worker = state_->worker(local_rank);
  for (Way& way : worker.ways) {
    if (way.piped) way.piped->drain();
  }
  // A call stack is nobody else's business, and TMPDIR is everybody's.
  if (!state_->keeps_files()) ::chmod(worker.error_file.c_str(), 0600);
}

bool Output::drained() const {
  return state_->drained();
}

void Output::when_drained(std::function<void()> done) {
  state_->drained_call = std::move(done);
  state_->check_drained();
}

void Output::close_round() {
  state_->close_round();
}

std::vector<std::string> Output::last_lines(LocalRank local_rank, Stream stream) const {
  const Way& way = state_->worker(local_rank).ways[index(stream)];
  if (way.piped) return agent::last_lines(way.piped->tail().bytes(), way.piped->tail().cut());
  if (!way.file.empty()) return last_lines_of_file(way.file);
  return {};
}

std::string Output::log_file(LocalRank local_rank, Stream stream) const {
  return state_->worker(local_rank).ways[index(stream)].file;
}

std::string Output::error_file(LocalRank local_rank) const {
  return state_->worker(local_rank).error_file;
}

const std::string& Output::run_folder() const {
  return state_->files.run_folder();
}

const std::string& Output::round_folder() const {
  return state_->files.attempt_folder();
}

void Output::finish(bool failure_reported) {
  state_->close_round();
  if (state_->keeps_files()) return;
  const int last = failure_reported ? state_->round - 1 : state_->round;
  state_->loose_error_files.remove(last, state_->spec.nproc);
}

}  // namespace distrun::agent
