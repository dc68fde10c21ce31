// Our client against PyTorch's own servers: a Python with torch in it serves, one test asks.
//
// DISTRUN_TORCH_PYTHON names the Python; the default is Debian's /usr/bin/python3 (python3-torch).
#include <distrun/store.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace distrun {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

// Ends with the test: the server serves until its standard input is closed.
class TorchServer {
 public:
  explicit TorchServer(const std::string& backend) {
    int to_it[2], from_it[2];
    if (::pipe(to_it) != 0 || ::pipe(from_it) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to_it[0], 0);
      ::dup2(from_it[1], 1);
      for (const int fd : {to_it[0], to_it[1], from_it[0], from_it[1]}) ::close(fd);
      const char* python = std::getenv("DISTRUN_TORCH_PYTHON");
      if (python == nullptr) python = "/usr/bin/python3";
      ::execlp(python, python, DISTRUN_TORCH_SERVER, "--backend", backend.c_str(), nullptr);
      ::_exit(77);
    }
    ::close(to_it[0]);
    ::close(from_it[1]);
    stdin_ = to_it[1];
    FILE* out = ::fdopen(from_it[0], "r");
    char line[256] = "";
    if (std::fgets(line, sizeof line, out) != nullptr && std::sscanf(line, "PORT %d", &port_) == 1)
      banner_ = line;
    std::fclose(out);
  }
  ~TorchServer() {
    ::close(stdin_);
    ::waitpid(pid_, nullptr, 0);
  }
  TorchServer(const TorchServer&) = delete;
  TorchServer& operator=(const TorchServer&) = delete;

  bool is_up() const { return port_ > 0; }
  const std::string& banner() const { return banner_; }
  TCPStoreOptions address() const {
    return {.host = "127.0.0.1", .port = static_cast<std::uint16_t>(port_), .timeout = 20s};
  }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  int port_ = 0;
  std::string banner_;
};

class TorchInterop : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!server_.is_up())
      GTEST_SKIP() << "no PyTorch with a " << GetParam()
                   << " server here (apt-get install python3-torch, or set DISTRUN_TORCH_PYTHON)";
    std::printf("%s", server_.banner().c_str());
  }
  TorchServer server_{GetParam()};
};

TEST_P(TorchInterop, EveryOperationGivesWhatItGivesOnOurOwnServer) {
  TCPStore store(server_.address());
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
  store.set("empty", "");
  EXPECT_EQ(store.get("empty"), "");
  EXPECT_EQ(store.add("n", 5), 5);
  EXPECT_EQ(store.add("n", -7), -2);
  EXPECT_EQ(store.get("n"), "-2");
  EXPECT_TRUE(store.check({"k", "n"}));
  EXPECT_FALSE(store.check({"k", "missing"}));
  EXPECT_EQ(store.compare_set("c", "wrong", "new"), "wrong");
  EXPECT_EQ(store.compare_set("c", "", "a"), "a");
  EXPECT_EQ(store.compare_set("c", "x", "b"), "a");
  EXPECT_EQ(store.compare_set("c", "a", "b"), "b");
  EXPECT_EQ(store.num_keys(), 4);
  EXPECT_TRUE(store.delete_key("c"));
  EXPECT_FALSE(store.delete_key("c"));
  store.append("k", "w");
  store.multi_set({{"x", "1"}, {"y", "2"}});
  EXPECT_THAT(store.multi_get({"y", "k", "x"}), ElementsAre("2", "vw", "1"));
}

TEST_P(TorchInterop, ATimedOutWaitLeavesTheStoreUsable) {
  TCPStore store(server_.address());
  EXPECT_THROW(store.wait({"late"}, 100ms), DistTimeoutError);
  store.set("late", "v");
  EXPECT_EQ(store.get("late"), "v");
  EXPECT_EQ(store.num_keys(), 1);
}

TEST_P(TorchInterop, ClonesMeetAtABarrierAndWakeEachOther) {
  TCPStore store(server_.address());
  std::thread other([clone = store.clone()] {
    clone->barrier("b", 2, 10s);
    clone->set("done", "1");
  });
  store.barrier("b", 2, 10s);
  store.wait({"done"}, 10s);
  other.join();
}

TEST_P(TorchInterop, QueuesWorkOrAreRefusedInWords) {
  TCPStore store(server_.address());
  try {
    store.queue_push("q", "1");
    store.queue_push("q", "2");
    EXPECT_EQ(store.queue_len("q"), 2);
    EXPECT_EQ(store.queue_pop("q"), "1");
    EXPECT_EQ(store.queue_try_pop("q"), "2");
    EXPECT_THROW(store.queue_try_pop("q"), QueueEmptyError);
  } catch (const DistUnsupportedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("too old"));
  }
  store.set("k", "still usable");
  EXPECT_EQ(store.get("k"), "still usable");
}

INSTANTIATE_TEST_SUITE_P(Server, TorchInterop, ::testing::Values("legacy", "libuv"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace distrun
