// A classifier with one hidden layer: 64 pixels, 32 tanh units, 10 classes.  All parameters are one
// run of floats, so that one all_reduce carries their gradient and one write stores them.
#pragma once

#include "apps/digits/images.h"

#include <cstddef>
#include <span>
#include <vector>

namespace digits {

inline constexpr std::size_t kHidden = 32;
inline constexpr std::size_t kParameters =
    kPixels * kHidden + kHidden + kHidden * kClasses + kClasses;

// The same start on every rank.
std::vector<float> initial_parameters();

struct Outcome {
  float loss = 0;  // cross entropy
  bool correct = false;
};

Outcome judge(std::span<const float> parameters, const Image& image);

// Adds the image's gradient to `gradient`, and returns how the network did on it.
Outcome learn(std::span<const float> parameters, const Image& image, std::span<float> gradient);

}  // namespace digits
