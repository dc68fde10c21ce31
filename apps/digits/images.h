// The digit images and how they are divided: every fifth is kept for the test, the rest is learnt
// from, in batches that depend on the step alone and not on who asks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t kPixels = 64;
inline constexpr std::size_t kClasses = 10;

struct Image {
  std::array<float, kPixels> pixels;  // 0 to 1
  std::size_t digit;
};

struct Images {
  std::vector<Image> train;
  std::vector<Image> test;
};

// One image a line: 64 numbers from 0 to 16 and the digit, with commas.
// Throws std::runtime_error naming the file, the line and the value.
Images read_images(const std::string& path);

// The indices of the images in the step's batch; every epoch goes through all images once, in an
// order of its own.
std::vector<std::size_t> batch_at(std::int64_t step, std::size_t images, std::size_t batch_size);

}  // namespace digits
