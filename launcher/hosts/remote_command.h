// What ssh is given: the client's words, its options, the host, and the one line that the login
// shell over there runs. Pure.
//
// The line holds nothing of the job. Arguments, variables, folder and token follow on the
// connection (host_order.h), so that no shell in between can change or show them; all that has to
// be quoted is the path of distrun.
#pragma once

#include "runtime/base/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace distrun::launcher {

// The argument that makes distrun take its job from stdin.
inline constexpr std::string_view kFromStdin = "--from-stdin";

// A command as a shell would cut it: blanks, quotes, backslashes; nothing is expanded.
Result<std::vector<std::string>> split_words(std::string_view command);

// One word for a POSIX shell.
std::string shell_quote(std::string_view word);

// `wanted`: what the user named (--remote-distrun), a path or a name in PATH; empty: `own`, the
// path of the distrun here, if it is one there too, else the one in PATH.
std::string remote_command(std::string_view own, std::string_view wanted);

// The whole argv. The user's own options of the client come first: with ssh the first one counts.
std::vector<std::string> ssh_arguments(const std::vector<std::string>& client,
                                       const std::string& host, const std::string& command);

}  // namespace distrun::launcher
