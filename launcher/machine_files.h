// How /proc and /sys are read: small files, whole, and folders whose entries end in a number.  What
// is not there reads as empty; what it means that it is missing is for the caller to say.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distrun::launcher {

// At most 256 KiB of it.
std::string read_file(const std::string& path);

bool exists(const std::string& path);

// The entries "<prefix><number>" of a folder and their paths, by number.
std::vector<std::pair<int, std::string>> numbered(const std::string& folder,
                                                  std::string_view prefix);

// All entries of a folder, sorted.
std::vector<std::string> entries(const std::string& folder);

}  // namespace distrun::launcher
