// The real plug-in, as a host loads it.  Without a GPU it has to say why it cannot be used.
#include "tests/runtime/nccl/ranks.h"
#include <distrun/backend_abi.h>

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <string>

extern "C" drb_status drb_probe_from_c(drb_entry entry, char* text, uint64_t capacity);

namespace distrun::nccl {
namespace {

#ifndef DISTRUN_NCCL_PLUGIN
#define DISTRUN_NCCL_PLUGIN ""
#endif

class Plugin : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = DISTRUN_NCCL_PLUGIN;
    if (path.empty()) GTEST_SKIP() << "libdistrun_nccl.so is not built: no CUDA or no NCCL here";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    entry_ = reinterpret_cast<drb_entry>(dlsym(handle, DRB_ENTRY_SYMBOL));
    ASSERT_NE(entry_, nullptr) << dlerror();
    handle_ = handle;
  }
  drb_entry entry_ = nullptr;
  void* handle_ = nullptr;  // never closed: it has threads
};

TEST_F(Plugin, SaysInWordsWhetherItCanBeUsedHere) {
  char text[400];
  const drb_status status = drb_probe_from_c(entry_, text, sizeof text);
  const std::string words = text;
  EXPECT_NE(words.find("NCCL 2."), std::string::npos) << words;
  if (status == DRB_OK) {
    EXPECT_NE(words.find("GPU"), std::string::npos) << words;
    return;
  }
  EXPECT_EQ(status, DRB_UNSUPPORTED);
  if (words.find("driver none") != std::string::npos) {
    EXPECT_NE(words.find("driver version is insufficient"), std::string::npos) << words;
  }
}

TEST_F(Plugin, KnowsNoHostOlderThanItsAbi) {
  EXPECT_EQ(entry_(0), nullptr);
}

TEST_F(Plugin, ServesNewerHostsWithWhatItHas) {
  const drb_backend* backend = entry_(DRB_ABI + 7);
  ASSERT_NE(backend, nullptr);
  EXPECT_EQ(backend->abi, DRB_ABI);
  EXPECT_STREQ(backend->name, "nccl");
}

TEST_F(Plugin, AGroupThatCannotBeMadeIsAnErrorInWords) {
  const drb_backend& backend = *entry_(DRB_ABI);
  char text[400];
  if (backend.probe(text, sizeof text) == DRB_OK) GTEST_SKIP() << "there is a GPU: " << text;
  testing::MemoryStore store;
  testing::GroupSpec spec{.eager = true};
  spec.options = {{"diagnosis_ms", "10"}};
  const testing::Made made = testing::make_group(backend, store, spec);
  EXPECT_EQ(made.answer.status, DRB_BACKEND);
  EXPECT_NE(made.answer.text.find("nccl group g (this is rank 0): on rank 0: create: "),
            std::string::npos)
      << made.answer.text;
  EXPECT_TRUE(store.has("g/nccl/failure/cause"));
}

TEST_F(Plugin, ShowsNothingElse) {
  EXPECT_EQ(dlsym(handle_, "_ZN7distrun4nccl12backend_overERKNS0_3ApiE"), nullptr);
}

}  // namespace
}  // namespace distrun::nccl
