// The file in which a worker leaves its last exception for the launcher's report.
#pragma once

#include <cstdint>
#include <string>

namespace distrun {

// The JSON that PyTorch's workers write: {"message": {"message": …, "extraInfo": {…}}}.
// Bytes that are not UTF-8 are replaced.
std::string error_file_text(const std::string& message, std::int64_t unix_seconds);

// Returns what went wrong, or an empty text.
std::string write_error_file(const std::string& path, const std::string& text);

}  // namespace distrun
