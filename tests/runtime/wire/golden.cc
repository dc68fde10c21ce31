#include "tests/runtime/wire/golden.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace distrun::wire::tcpstore {
namespace {

// "5a" or "5a*5000".
std::string bytes_of(const std::string& token) {
  std::size_t used = 0;
  const auto byte = static_cast<char>(std::stoi(token, &used, 16));
  if (used != 2) throw std::runtime_error("not a byte: " + token);
  if (used == token.size()) return std::string(1, byte);
  if (token[used] != '*') throw std::runtime_error("not a byte: " + token);
  return std::string(std::stoul(token.substr(used + 1)), byte);
}

std::string quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto shown = [&](std::string_view part) {
    std::string out = "\"";
    for (const char c : part) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\') {
        out += c;
      } else {
        out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
      }
    }
    return out + '"';
  };
  if (text.size() > 200 && text.find_first_not_of(text[0]) == std::string_view::npos)
    return shown(text.substr(0, 1)) + "*" + std::to_string(text.size());
  return shown(text);
}

GoldenLine parse_line(const std::string& line) {
  std::istringstream words(line);
  std::string head;
  words >> head;
  std::string rest;
  std::getline(words >> std::ws, rest);
  if (rest.starts_with("= ")) return {GoldenLine::Kind::request, head, rest.substr(2)};
  const std::size_t arrow = head.find('>');
  if (arrow == std::string::npos) throw std::runtime_error("no direction");
  const bool from_server = head.substr(0, arrow) == "S";
  const std::string connection = from_server ? head.substr(arrow + 1) : head.substr(0, arrow);
  if (from_server && rest == "closed") return {GoldenLine::Kind::closed, connection, {}};
  std::istringstream tokens(rest);
  std::string bytes;
  for (std::string token; tokens >> token;) bytes += bytes_of(token);
  return {from_server ? GoldenLine::Kind::to_client : GoldenLine::Kind::to_server, connection,
          bytes};
}

}  // namespace

std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(DISTRUN_GOLDEN_DIR))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<GoldenLine> read_golden(const std::string& path) {
  std::ifstream file(path);
  std::vector<GoldenLine> lines;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    try {
      lines.push_back(parse_line(line));
    } catch (const std::exception& fault) {
      throw std::runtime_error(path + ":" + std::to_string(number) + ": " + fault.what());
    }
  }
  if (lines.empty()) throw std::runtime_error(path + ": nothing in it");
  return lines;
}

std::string describe(const Request& request) {
  std::string text(name(request.op));
  for (const auto arg : request.args) text.append(" ").append(quoted(arg));
  if (request.op == Op::add || request.op == Op::barrier || request.op == Op::ping)
    text.append(" ").append(std::to_string(request.number));
  return text;
}

}  // namespace distrun::wire::tcpstore
