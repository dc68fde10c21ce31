#include "launcher/hosts/host_order.h"

#include "launcher/text.h"

#include <algorithm>
#include <cctype>

namespace distrun::launcher {
namespace {

constexpr std::string_view kProtocol = "1";
constexpr char kSeparator = '\x1e';
constexpr std::size_t kKindMax = 16;
constexpr std::size_t kLengthMax = 10;  // digits

Error wrong(std::string text) {
  return Error{Errc::protocol, std::move(text)};
}

bool is_address(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.' || c == '%';
  });
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string address_from(std::string_view text) {
  return is_address(text) ? std::string(text) : std::string();
}

// The first word of `text`, which loses it and the blank behind it.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<HostWord> parse_greeting(std::string_view rest) {
  HostWord word;
  word.kind = HostWord::Kind::greeting;
  // Another protocol is another version, whatever follows.
  const std::string_view protocol = take_word(rest);
  word.greeting.version = printable(take_word(rest));
  if (protocol != kProtocol) {
    word.greeting.version += " (protocol " + printable(protocol) + ")";
    return word;
  }
  word.greeting.address = address_from(take_word(rest));
  word.greeting.client = address_from(take_word(rest));
  const auto port = parse_int(take_word(rest), 0, 65535);
  if (!port) return std::nullopt;
  word.greeting.port = static_cast<std::uint16_t>(*port);
  return word;
}

// What follows a separator.
std::optional<HostWord> parse_word(std::string_view line, std::string_view mark) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const std::string_view first = take_word(line);
  if (first == "distrun") return parse_greeting(line);
  if (mark.empty() || first != mark) return std::nullopt;
  HostWord word;
  const std::string_view kind = take_word(line);
  word.text = line;
  if (kind == "log") return word;
  if (kind == "running") {
    word.kind = HostWord::Kind::running;
    return word;
  }
  if (kind == "report") {
    word.kind = HostWord::Kind::report;
    return word;
  }
  const auto status = parse_int(line, 0, 255);
  if (kind != "end" || !status) return std::nullopt;
  word.kind = HostWord::Kind::end;
  word.status = static_cast<int>(*status);
  return word;
}

}  // namespace

std::string to_frame(std::string_view kind, std::string_view value) {
  std::string frame(kind);
  frame += " " + std::to_string(value.size()) + ":";
  frame += value;
  return frame += '\n';
}

std::string to_frames(const HostOrder& order) {
  std::string frames = to_frame("distrun", kProtocol);
  frames += to_frame("mark", order.mark);
  frames += to_frame("name", order.name);
  frames += to_frame("folder", order.folder);
  if (!order.token.empty()) frames += to_frame("token", order.token);
  for (const auto& [name, value] : order.environment) {
    std::string variable = name;
    variable.append("=").append(value);
    frames += to_frame("env", variable);
  }
  for (const std::string& argument : order.arguments) frames += to_frame("arg", argument);
  return frames + to_frame("go", "");
}

Error FrameReader::broken(std::string why) {
  error_ = wrong("not what a starting distrun says: " + std::move(why));
  return *error_;
}

Result<std::optional<Frame>> FrameReader::next() {
  if (error_) return *error_;
  const std::string_view bytes = std::string_view(held_).substr(begin_);
  const std::size_t colon = bytes.substr(0, kKindMax + kLengthMax + 2).find(':');
  if (colon == bytes.npos) {
    if (bytes.size() < kKindMax + kLengthMax + 2) return std::nullopt;
    return broken(quote(bytes.substr(0, 40)));
  }
  const std::string_view head = bytes.substr(0, colon);
  const std::size_t blank = head.find(' ');
  const auto length = blank == head.npos ? std::nullopt
                                         : parse_int(head.substr(blank + 1), 0,
                                                     static_cast<std::int64_t>(kValueMax));
  if (!length) return broken(quote(head));
  const auto size = static_cast<std::size_t>(*length);
  if (bytes.size() < colon + 1 + size + 1) return std::nullopt;
  if (bytes[colon + 1 + size] != '\n') return broken("no end of " + quote(head));
  Frame frame{std::string(head.substr(0, blank)), std::string(bytes.substr(colon + 1, size))};
  begin_ += colon + 1 + size + 1;
  // What was handed out goes once it is the greater part: else many small frames cost their square.
  if (begin_ > held_.size() / 2) {
    held_.erase(0, begin_);
    begin_ = 0;
  }
  return std::optional(std::move(frame));
}

Result<bool> OrderReader::take(const Frame& frame) {
  bytes_ += frame.kind.size() + frame.value.size();
  if (bytes_ > kOrderMax) return wrong("an order of more than 8 MiB");
  if (frame.kind == "beat") return false;
  if (!begun_) {
    if (frame.kind != "distrun" || frame.value != kProtocol) {
      return wrong("not protocol " + std::string(kProtocol) + ", but " + quote(frame.kind) + " " +
                   quote(frame.value));
    }
    begun_ = true;
  } else if (frame.kind == "mark") {
    order_.mark = frame.value;
  } else if (frame.kind == "name") {
    order_.name = frame.value;
  } else if (frame.kind == "folder") {
    order_.folder = frame.value;
  } else if (frame.kind == "token") {
    order_.token = frame.value;
  } else if (frame.kind == "env") {
    const std::size_t equals = frame.value.find('=');
    if (equals == 0 || equals == frame.value.npos) return wrong("a variable without a name");
    order_.environment.emplace_back(frame.value.substr(0, equals), frame.value.substr(equals + 1));
  } else if (frame.kind == "arg") {
    order_.arguments.push_back(frame.value);
  } else if (frame.kind == "go") {
    if (order_.mark.empty() || order_.folder.empty()) return wrong("an order without its mark");
    return true;
  } else {
    return wrong("an order with " + quote(frame.kind));
  }
  return false;
}

std::string to_line(const Greeting& greeting) {
  return std::string(1, kSeparator) + "distrun " + std::string(kProtocol) + " " + greeting.version +
         " " + or_dash(greeting.address) + " " + or_dash(greeting.client) + " " +
         std::to_string(greeting.port) + "\n";
}

std::string marked(std::string_view mark, std::string_view kind, std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += kSeparator;
    lines.append(mark).append(" ").append(kind).append(" ").append(text.substr(0, end));
    lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

HostLine parse_host_line(std::string_view line, std::string_view mark) {
  for (std::size_t at = line.find(kSeparator); at != line.npos;
       at = line.find(kSeparator, at + 1)) {
    if (auto word = parse_word(line.substr(at + 1), mark))
      return {line.substr(0, at), std::move(word)};
  }
  return {line, std::nullopt};
}

Greeting greeting_of(const Environment& environment, std::string version, std::uint16_t port) {
  Greeting greeting;
  greeting.version = std::move(version);
  greeting.port = port;
  std::string_view connection = lookup(environment, "SSH_CONNECTION").value_or("");
  const std::string_view client = take_word(connection);
  take_word(connection);
  const std::string_view server = take_word(connection);
  greeting.client = address_from(client);
  greeting.address = address_from(server);
  return greeting;
}

}  // namespace distrun::launcher
