#include "launcher/hosts/remote_command.h"

#include "launcher/text.h"

#include <algorithm>
#include <cctype>

namespace distrun::launcher {

Result<std::vector<std::string>> split_words(std::string_view command) {
  const auto unfinished = [command](std::string_view what) {
    return Error{Errc::invalid_argument, std::string(what) + ": " + quote(command)};
  };
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word has begun; it may be empty
  char quoted = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool escapes = c == '\\' && quoted != '\'';
    if (escapes && i + 1 == command.size()) return unfinished("nothing follows the backslash");
    if (escapes && (quoted == 0 || command[i + 1] == '"' || command[i + 1] == '\\')) {
      word += command[++i];
      open = true;
    } else if (quoted != 0) {
      if (c == quoted) {
        quoted = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quoted = c;
      open = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (open) words.push_back(std::move(word));
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quoted != 0) return unfinished("a quote that is not closed");
  if (open) words.push_back(std::move(word));
  if (words.empty() || words.front().empty()) return unfinished("no command");
  return words;
}

std::string shell_quote(std::string_view word) {
  static constexpr std::string_view kPlain = "@%+=:,./-_";
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (std::isalnum(static_cast<unsigned char>(c)) != 0 &&
            static_cast<unsigned char>(c) < 0x80) ||
           kPlain.find(c) != kPlain.npos;
  });
  if (plain) return std::string(word);
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += R"('\'')";
    } else {
      text += c;
    }
  }
  return text + "'";
}

std::string remote_command(std::string_view own, std::string_view wanted) {
  // A login shell may also be csh or fish: what is here means the same in all.
  const std::string flag = " " + std::string(kFromStdin);
  if (wanted.starts_with("~/")) return "exec \"$HOME\"" + shell_quote(wanted.substr(1)) + flag;
  if (!wanted.empty()) return "exec " + shell_quote(wanted) + flag;
  if (own.empty()) return "exec distrun" + flag;
  return "exec sh -c 'if [ -x \"$0\" ]; then exec \"$0\"" + flag + "; else exec distrun" + flag +
         "; fi' " + shell_quote(own);
}

std::vector<std::string> ssh_arguments(const std::vector<std::string>& client,
                                       const std::string& host, const std::string& command) {
  std::vector<std::string> argv = client;
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10",
        // A connection that says nothing any more is noticed, and the host counts as lost.
        "ServerAliveInterval=5", "ServerAliveCountMax=3",
        // A connection of its own: through another session's master, none of the above would hold.
        // And none may fail because a forwarding of the user's configuration is there already.
        "ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes"}) {
    argv.emplace_back("-o");
    argv.emplace_back(option);
  }
  argv.emplace_back("-T");
  argv.emplace_back("--");
  argv.push_back(host);
  argv.push_back(command);
  return argv;
}

}  // namespace distrun::launcher
