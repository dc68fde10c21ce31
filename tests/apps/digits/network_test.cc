#include "apps/digits/network.h"

#include <gtest/gtest.h>

namespace digits {
namespace {

Image some_image() {
  Image image{};
  for (std::size_t p = 0; p < kPixels; ++p) image.pixels[p] = static_cast<float>(p % 5) / 4;
  image.digit = 3;
  return image;
}

TEST(Network, StartsTheSameEveryTime) {
  EXPECT_EQ(initial_parameters(), initial_parameters());
}

TEST(Network, TheGradientIsTheSlopeOfTheLoss) {
  const Image image = some_image();
  std::vector<float> parameters = initial_parameters();
  std::vector<float> gradient(kParameters, 0.0f);
  learn(parameters, image, gradient);
  // One of each layer's weights and biases.
  constexpr float kStep = 1e-2f;
  for (const std::size_t at :
       {std::size_t{1}, kPixels * 7 + 9, kPixels * kHidden + 4,
        kPixels * kHidden + kHidden + kHidden * 3 + 5, kParameters - 7, kParameters - 1}) {
    const float before = parameters[at];
    parameters[at] = before + kStep;
    const float up = judge(parameters, image).loss;
    parameters[at] = before - kStep;
    const float down = judge(parameters, image).loss;
    parameters[at] = before;
    EXPECT_NEAR(gradient[at], (up - down) / (2 * kStep), 2e-3f) << at;
  }
}

TEST(Network, GradientsAddUp) {
  const Image image = some_image();
  const std::vector<float> parameters = initial_parameters();
  std::vector<float> once(kParameters, 0.0f), twice(kParameters, 0.0f);
  learn(parameters, image, once);
  learn(parameters, image, twice);
  learn(parameters, image, twice);
  EXPECT_FLOAT_EQ(twice[kParameters - 1], 2 * once[kParameters - 1]);
}

TEST(Network, OneImageIsLearntByHeart) {
  const Image image = some_image();
  std::vector<float> parameters = initial_parameters();
  for (int step = 0; step < 50; ++step) {
    std::vector<float> gradient(kParameters, 0.0f);
    learn(parameters, image, gradient);
    for (std::size_t i = 0; i < kParameters; ++i) parameters[i] -= 0.1f * gradient[i];
  }
  EXPECT_TRUE(judge(parameters, image).correct);
  EXPECT_LT(judge(parameters, image).loss, 0.05f);
}

}  // namespace
}  // namespace digits
