#include "runtime/worker/backend_config.h"

#include <distrun/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string why_not(std::string_view text) {
  try {
    parse_backends(text);
  } catch (const DistArgumentError& error) {
    return error.what();
  }
  return "";
}

TEST(BackendConfig, ANameAloneIsForTheDevicesOfItsBackend) {
  EXPECT_THAT(parse_backends("nccl"), ElementsAre(BackendChoice{std::nullopt, "nccl"}));
  EXPECT_THAT(parse_backends("gloo"), ElementsAre(BackendChoice{DeviceType::cpu, "gloo"}));
}

TEST(BackendConfig, AListNamesABackendForEachDevice) {
  EXPECT_THAT(
      parse_backends("cpu:gloo,cuda:nccl"),
      ElementsAre(BackendChoice{DeviceType::cpu, "gloo"}, BackendChoice{DeviceType::cuda, "nccl"}));
  EXPECT_THAT(parse_backends("rocm:mine"), ElementsAre(BackendChoice{DeviceType::rocm, "mine"}));
}

TEST(BackendConfig, WhatMakesNoSenseIsRefusedInWords) {
  EXPECT_THAT(why_not(""), HasSubstr("no name of a backend"));
  EXPECT_THAT(why_not("cpu:"), HasSubstr("no name of a backend"));
  EXPECT_THAT(why_not("cpu:gloo,"), HasSubstr("no name of a backend"));
  EXPECT_THAT(why_not("g loo"), HasSubstr("no name of a backend"));
  EXPECT_THAT(why_not("tpu:mine"), HasSubstr("no device is called \"tpu\" (there are: cpu, cuda"));
  EXPECT_THAT(why_not("cpu:gloo,cpu:mine"), HasSubstr("two backends for cpu"));
  EXPECT_THAT(why_not("cpu:gloo,nccl"), HasSubstr("each needs a device"));
  EXPECT_THAT(why_not("gloo,nccl"), HasSubstr("each needs a device"));
  EXPECT_THAT(why_not("nccl,mine"), HasSubstr("each needs a device"));
  EXPECT_THAT(why_not("cuda:gloo"), HasSubstr("gloo takes memory of the CPU only"));
}

}  // namespace
}  // namespace distrun
