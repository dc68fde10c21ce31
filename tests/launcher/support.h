// For the tests of this folder: files of the source tree, and a folder that is gone after the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace distrun::launcher {

inline std::string source_path(const std::string& path) {
  return std::string(DISTRUN_SOURCE_DIR) + "/" + path;
}

inline std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path << " cannot be read";
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "distrun_test_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name = "") const { return path_ + "/" + name; }

  // Writes a file, making its folders.
  void write(const std::string& name, const std::string& text, bool executable = false) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    if (executable) {
      std::filesystem::permissions(file, std::filesystem::perms::owner_exec,
                                   std::filesystem::perm_options::add);
    }
  }

 private:
  std::string path_;
};

}  // namespace distrun::launcher
