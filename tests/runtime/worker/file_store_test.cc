// FileStore's bytes, as PyTorch 1.13.1 writes them, and what happens to files that are not whole.
#include "tests/support/run_program.h"
#include <distrun/store.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string from_hex(const std::string& hex) {
  std::istringstream in(hex);
  std::string out;
  for (int byte = 0; in >> std::hex >> byte;) out.push_back(static_cast<char>(byte));
  return out;
}

// Recorded from PyTorch 1.13.1: what each call adds to the file.
TEST(FileStore, WritesTheBytesThatPyTorchWrites) {
  test::TempFolder dir;
  FileStore store(dir / "f");
  const auto before = [&] { return bytes_of(dir / "f").size(); };
  const struct {
    std::string call;
    std::function<void()> make;
    std::string hex;
  } steps[] = {
      {"set('k','v1')", [&] { store.set("k", "v1"); }, "02 00 00 00 2f 6b 02 00 00 00 76 31"},
      {"add('n',5)", [&] { store.add("n", 5); }, "02 00 00 00 2f 6e 01 00 00 00 35"},
      {"add('n',-7)", [&] { store.add("n", -7); }, "02 00 00 00 2f 6e 02 00 00 00 2d 32"},
      {"compare_set('cs','','a')", [&] { store.compare_set("cs", "", "a"); },
       "03 00 00 00 2f 63 73 01 00 00 00 61"},
      {"compare_set('cs','bad','b')", [&] { store.compare_set("cs", "bad", "b"); }, ""},
      {"compare_set('no','exp','b')", [&] { store.compare_set("no", "exp", "b"); }, ""},
      {"delete_key('cs')", [&] { store.delete_key("cs"); }, "04 00 00 00 2d 2f 63 73 00 00 00 00"},
      {"delete_key('cs') again", [&] { store.delete_key("cs"); },
       "04 00 00 00 2d 2f 63 73 00 00 00 00"},
      {"set('-x','y')", [&] { store.set("-x", "y"); }, "03 00 00 00 2f 2d 78 01 00 00 00 79"},
      {"set('e','')", [&] { store.set("e", ""); }, "02 00 00 00 2f 65 00 00 00 00"},
      {"add('e',3)", [&] { store.add("e", 3); }, "02 00 00 00 2f 65 01 00 00 00 33"},
      {"set('/lead','z')", [&] { store.set("/lead", "z"); },
       "06 00 00 00 2f 2f 6c 65 61 64 01 00 00 00 7a"},
  };
  for (const auto& step : steps) {
    const std::size_t at = before();
    step.make();
    EXPECT_EQ(bytes_of(dir / "f").substr(at), from_hex(step.hex)) << step.call;
  }
}

TEST(FileStore, ReadsWhatPyTorchWrote) {
  test::TempFolder dir;
  write_bytes(dir / "f", from_hex("02 00 00 00 2f 71 01 00 00 00 31 "  // set('q','1')
                                  "02 00 00 00 2f 64 01 00 00 00 32 "  // set('d','2')
                                  "03 00 00 00 2d 2f 64 00 00 00 00 "  // delete_key('d')
                                  "08 00 00 00 63 6c 65 61 6e 75 70 2f 01 00 00 00 31"));
  FileStore store(dir / "f");
  EXPECT_EQ(store.get("q"), "1");
  EXPECT_FALSE(store.check({"d"}));
  EXPECT_EQ(store.num_keys(), 3);  // q, and the two that the stores keep for themselves
}

TEST(FileStore, TheLastOfAllObjectsRemovesTheFile) {
  test::TempFolder dir;
  const std::string path = dir / "f";
  auto first = std::make_unique<FileStore>(path, 1);
  auto second = std::make_unique<FileStore>(path, 1);
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileStore, ANegativeWorldSizeKeepsTheFile) {
  test::TempFolder dir;
  { FileStore store(dir / "f"); }
  EXPECT_TRUE(std::filesystem::exists(dir / "f"));
}

TEST(FileStore, TheFileStaysUntilEveryRankHasBeenThere) {
  test::TempFolder dir;
  {
    FileStore one(dir / "f", 2);
    one.clone();  // does not count as another rank
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "f"));
  { FileStore two(dir / "f", 2); }
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
}

// Every place at which a writer can have died: what was whole before stays, and the next writer
// goes on behind it.
TEST(FileStore, ATornRecordIsIgnoredAndCutOffByTheNextWriter) {
  test::TempFolder dir;
  std::string whole;
  std::string with_next;
  {
    FileStore store(dir / "f");
    store.set("k", "v");
    whole = bytes_of(dir / "f");
    store.set("next", "value");
    with_next = bytes_of(dir / "f");
  }
  for (std::size_t size = whole.size() + 1; size < with_next.size(); ++size) {
    const std::string path = dir / std::to_string(size);
    FileStore reader(path);
    const std::string start = bytes_of(path);
    write_bytes(path, start + with_next.substr(whole.size() - 11, size - whole.size() + 11));
    EXPECT_EQ(reader.get("k"), "v") << size;
    EXPECT_FALSE(reader.check({"next"})) << size;
    reader.set("after", "wards");
    EXPECT_EQ(reader.get("after"), "wards") << size;
    FileStore fresh(path);
    EXPECT_EQ(fresh.get("after"), "wards") << size;
    EXPECT_FALSE(fresh.check({"next"})) << size;
  }
}

TEST(FileStore, AFileOfAnotherKindIsRefusedAndLeftAlone) {
  test::TempFolder dir;
  const std::string text = "root:x:0:0:root:/root:/bin/bash\n";
  write_bytes(dir / "passwd", text);
  try {
    FileStore store(dir / "passwd");
    FAIL() << "accepted";
  } catch (const DistStoreError& error) {
    EXPECT_THAT(error.what(), HasSubstr("passwd is not the file of a store"));
  }
  // One whose first length is small enough to be one.
  write_bytes(dir / "zeros", from_hex("04 00 00 00 41 42 43 44 00 00 00 00"));
  EXPECT_THROW(FileStore store(dir / "zeros"), DistStoreError);
  EXPECT_EQ(bytes_of(dir / "passwd"), text);
}

TEST(FileStore, AFolderThatIsNotThereIsNamed) {
  try {
    FileStore store("/no/such/folder/f");
    FAIL() << "accepted";
  } catch (const DistStoreError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/folder/f: No such file or directory"));
  }
}

TEST(FileStore, AFileThatIsReplacedIsReadFromItsStart) {
  test::TempFolder dir;
  FileStore store(dir / "f");
  store.set("old", "v");
  std::filesystem::remove(dir / "f");
  EXPECT_FALSE(store.check({"old"}));
  FileStore other(dir / "f");
  other.set("new", "v");
  EXPECT_EQ(store.get("new"), "v");
}

TEST(FileStore, ALockThatIsNeverGivenBackEndsInATimeout) {
  test::TempFolder dir;
  FileStore store(dir / "f", -1, 100ms);
  const int fd = ::open((dir / "f").c_str(), O_RDWR);
  ASSERT_EQ(0, ::flock(fd, LOCK_EX));
  EXPECT_THROW(store.set("k", "v"), DistTimeoutError);
  ::close(fd);
  store.set("k", "v");
}

}  // namespace
}  // namespace distrun
