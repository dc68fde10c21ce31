// Golden conversations: recorded bytes of real clients and servers, as readable text.  The format
// is in golden/README.md.
#pragma once

#include "runtime/wire/tcpstore.h"

#include <string>
#include <vector>

namespace distrun::wire::tcpstore {

struct GoldenLine {
  enum class Kind { to_server, to_client, request, closed };
  Kind kind;
  std::string connection;
  std::string content;  // bytes, or the request as text
};

// Every *.txt of the folder.
std::vector<std::string> golden_files();

// Throws std::runtime_error with file and line if the text is not as README.md says.
std::vector<GoldenLine> read_golden(const std::string& path);

// As the files write it: SET "/k" "v1", ADD "/n" -7.
std::string describe(const Request& request);

}  // namespace distrun::wire::tcpstore
