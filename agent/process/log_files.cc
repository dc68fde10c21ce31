#include "agent/process/log_files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace distrun::agent {
namespace {

constexpr int kTries = 100;
constexpr std::size_t kLongestRunId = 128;

std::string random_name() {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";
  unsigned char bytes[8];
  if (::getentropy(bytes, sizeof bytes) != 0) std::fill(std::begin(bytes), std::end(bytes), 0);
  std::string name;
  for (const unsigned char byte : bytes) name += kLetters[byte % kLetters.size()];
  return name;
}

// A worker that changes its folder must still find its error file.
std::string absolute_path(const std::string& path) {
  std::error_code ec;
  const auto absolute = std::filesystem::absolute(path, ec);
  return ec ? path : absolute.lexically_normal().string();
}

// Makes a folder that was not there before, of our own: nobody else can have put anything in it.
template <class Name>
Result<std::string> make_private_folder(const std::string& parent, Name name) {
  for (int i = 0; i < kTries; ++i) {
    std::string path = parent + "/" + name(random_name());
    if (::mkdir(path.c_str(), 0700) == 0) return path;
    if (errno != EEXIST) return os_error("cannot make a folder in " + parent, errno);
  }
  return Error{Errc::limit, "cannot make a folder in " + parent + ": all names tried are taken"};
}

}  // namespace

std::string run_folder_name(std::string_view run_id, std::string_view random) {
  std::string name(run_id.substr(0, kLongestRunId));
  for (char& c : name) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20) c = '_';
  }
  return name.append("_").append(random);
}

LooseErrorFiles::LooseErrorFiles(const std::string& temporary)
    : stem_(absolute_path(temporary) + "/torchelastic_" + random_name() + random_name()) {}

std::string LooseErrorFiles::path(int round, LocalRank local_rank) const {
  return stem_ + "_" + std::to_string(round) + "_" + std::to_string(local_rank.value) +
         "_error.json";
}

void LooseErrorFiles::remove(int last, int nproc) const {
  for (int round = 1; round <= last; ++round) {
    for (int i = 0; i < nproc; ++i) ::unlink(path(round, LocalRank(i)).c_str());
  }
}

LogFiles::LogFiles(std::string base, std::string temporary, std::string run_id)
    : base_(std::move(base)), temporary_(std::move(temporary)), run_id_(std::move(run_id)) {}

Result<bool> LogFiles::open_base() {
  std::string path = absolute_path(base_.empty() ? temporary_ : base_);
  if (base_.empty()) {
    auto made = make_private_folder(
        path, [](const std::string& random) { return "torchelastic_" + random; });
    if (!made) return made.error();
    base_ = *made;
    return true;
  }
  std::error_code ec;
  std::filesystem::create_directories(path, ec);
  std::error_code unreadable;
  if (ec && std::filesystem::is_regular_file(path, unreadable)) {
    return Error{Errc::invalid_argument, "--log-dir: a file, not a folder: " + path};
  }
  if (ec) return os_error("--log-dir: cannot make the folder " + path, ec.value());
  base_ = std::move(path);
  return true;
}

Result<bool> LogFiles::open_run() {
  if (auto opened = open_base(); !opened) return opened.error();
  auto made = make_private_folder(
      base_, [this](const std::string& random) { return run_folder_name(run_id_, random); });
  if (!made) return made.error();
  run_ = *made;
  return true;
}

Result<bool> LogFiles::open_attempt(int restart_count) {
  if (disabled()) return true;
  if (run_.empty()) {
    if (auto made = open_run(); !made) return made.error();
  }
  std::string path = run_ + "/attempt_" + std::to_string(restart_count);
  const int again = starts_[restart_count]++;
  if (again > 0) path += "." + std::to_string(again);
  if (::mkdir(path.c_str(), 0777) != 0) return os_error("cannot make the folder " + path, errno);
  attempt_ = std::move(path);
  return true;
}

Result<std::string> LogFiles::open_rank(LocalRank local_rank) {
  if (disabled() || attempt_.empty()) return std::string();
  std::string path = attempt_ + "/" + std::to_string(local_rank.value);
  if (::mkdir(path.c_str(), 0777) != 0) return os_error("cannot make the folder " + path, errno);
  return path;
}

}  // namespace distrun::agent
