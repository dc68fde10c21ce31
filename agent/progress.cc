#include "agent/progress.h"

namespace distrun::agent {
namespace {

std::string two_digits(long value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

}  // namespace

std::string to_text(Duration elapsed) {
  const long seconds = std::chrono::duration_cast<std::chrono::seconds>(elapsed).count();
  if (seconds < 60) return std::to_string(seconds) + " s";
  const long minutes = seconds / 60;
  if (minutes < 60) return std::to_string(minutes) + " min " + two_digits(seconds % 60) + " s";
  return std::to_string(minutes / 60) + " h " + two_digits(minutes % 60) + " min";
}

std::string to_line(const Progress& p) {
  std::string line = std::to_string(p.workers);
  if (p.workers != p.nproc) line += " of " + std::to_string(p.nproc);
  line += p.nproc == 1 ? " worker " : " workers ";
  switch (p.phase) {
    case Progress::Phase::starting:
      line += "starting";
      break;
    case Progress::Phase::running:
      line += "running";
      break;
    case Progress::Phase::stopping:
      line += "left to stop";
      break;
  }
  return line + ", round " + std::to_string(p.round) + ", " + to_text(p.elapsed) + ", restarts " +
         std::to_string(p.restarts) + "/" + std::to_string(p.max_restarts);
}

}  // namespace distrun::agent
