#include "apps/digits/images.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace digits {
namespace {

constexpr int kWhitest = 16;
constexpr std::size_t kTestEvery = 5;

int number(std::string_view& rest, int most, const std::string& where) {
  int value = 0;
  const auto [stop, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (failure != std::errc() || value < 0 || value > most)
    throw std::runtime_error(where + ": not a number from 0 to " + std::to_string(most) + ": \"" +
                             std::string(rest.substr(0, rest.find(','))) + "\"");
  rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
  if (rest.starts_with(',')) rest.remove_prefix(1);
  return value;
}

}  // namespace

Images read_images(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + ": cannot be opened");
  Images images;
  std::string line;
  for (std::size_t count = 0; std::getline(in, line); ++count) {
    const std::string where = path + ", line " + std::to_string(count + 1);
    std::string_view rest = line;
    Image image{};
    for (float& pixel : image.pixels)
      pixel = static_cast<float>(number(rest, kWhitest, where)) / kWhitest;
    image.digit = static_cast<std::size_t>(number(rest, kClasses - 1, where));
    if (!rest.empty()) throw std::runtime_error(where + ": more than 65 values");
    (count % kTestEvery == kTestEvery - 1 ? images.test : images.train).push_back(image);
  }
  if (images.test.empty()) throw std::runtime_error(path + ": fewer than 5 images");
  return images;
}

std::vector<std::size_t> batch_at(std::int64_t step, std::size_t images, std::size_t batch_size) {
  const std::size_t batches = std::max<std::size_t>(images / batch_size, 1);
  const auto epoch = static_cast<std::uint64_t>(step) / batches;
  const auto batch = static_cast<std::uint64_t>(step) % batches;
  std::vector<std::size_t> order(images);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Not std::shuffle, whose result is each library's own affair.
  std::mt19937_64 random(epoch);
  for (std::size_t i = images; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  const std::size_t begin = batch * batch_size;
  const std::size_t end = std::min(begin + batch_size, images);
  return {order.begin() + static_cast<std::ptrdiff_t>(begin),
          order.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace digits
