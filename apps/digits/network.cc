#include "apps/digits/network.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace digits {
namespace {

// Where each layer lies in the run of parameters.
template <class T>
struct Layers {
  explicit Layers(std::span<T> all)
      : in(all.subspan(0, kPixels * kHidden)),
        in_bias(all.subspan(in.size(), kHidden)),
        out(all.subspan(in.size() + kHidden, kHidden * kClasses)),
        out_bias(all.subspan(in.size() + kHidden + out.size(), kClasses)) {}
  std::span<T> in;  // one row of kPixels for each hidden unit
  std::span<T> in_bias;
  std::span<T> out;  // one row of kHidden for each class
  std::span<T> out_bias;
};

struct Activations {
  std::array<float, kHidden> hidden;
  std::array<float, kClasses> probability;
};

Activations forward(const Layers<const float>& layers, const Image& image) {
  Activations at{};
  for (std::size_t h = 0; h < kHidden; ++h) {
    float sum = layers.in_bias[h];
    const auto row = layers.in.subspan(h * kPixels, kPixels);
    for (std::size_t p = 0; p < kPixels; ++p) sum += row[p] * image.pixels[p];
    at.hidden[h] = std::tanh(sum);
  }
  for (std::size_t c = 0; c < kClasses; ++c) {
    float sum = layers.out_bias[c];
    const auto row = layers.out.subspan(c * kHidden, kHidden);
    for (std::size_t h = 0; h < kHidden; ++h) sum += row[h] * at.hidden[h];
    at.probability[c] = sum;
  }
  // Less the largest, so that exp cannot overflow.
  const float largest = *std::max_element(at.probability.begin(), at.probability.end());
  float total = 0;
  for (float& p : at.probability) total += p = std::exp(p - largest);
  for (float& p : at.probability) p /= total;
  return at;
}

Outcome outcome(const Activations& at, const Image& image) {
  const auto best = std::max_element(at.probability.begin(), at.probability.end());
  constexpr float kLeast = 1e-30f;
  return {-std::log(std::max(at.probability[image.digit], kLeast)),
          static_cast<std::size_t>(best - at.probability.begin()) == image.digit};
}

}  // namespace

std::vector<float> initial_parameters() {
  std::vector<float> parameters(kParameters, 0.0f);
  const Layers<float> layers{std::span(parameters)};
  std::mt19937_64 random(1);
  const auto fill = [&](std::span<float> weights, std::size_t inputs) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(inputs));
    for (float& weight : weights)  // -scale to scale; not a distribution of the library's making
      weight = scale * (static_cast<float>(random() >> 40) / static_cast<float>(1 << 23) - 1.0f);
  };
  fill(layers.in, kPixels);
  fill(layers.out, kHidden);
  return parameters;
}

Outcome judge(std::span<const float> parameters, const Image& image) {
  return outcome(forward(Layers<const float>(parameters), image), image);
}

Outcome learn(std::span<const float> parameters, const Image& image, std::span<float> gradient) {
  const Layers<const float> layers(parameters);
  const Layers<float> to(gradient);
  const Activations at = forward(layers, image);
  std::array<float, kHidden> blame{};
  for (std::size_t c = 0; c < kClasses; ++c) {
    const float error = at.probability[c] - (c == image.digit ? 1.0f : 0.0f);
    to.out_bias[c] += error;
    for (std::size_t h = 0; h < kHidden; ++h) {
      to.out[c * kHidden + h] += error * at.hidden[h];
      blame[h] += error * layers.out[c * kHidden + h];
    }
  }
  for (std::size_t h = 0; h < kHidden; ++h) {
    const float error = blame[h] * (1.0f - at.hidden[h] * at.hidden[h]);
    to.in_bias[h] += error;
    for (std::size_t p = 0; p < kPixels; ++p) to.in[h * kPixels + p] += error * image.pixels[p];
  }
  return outcome(at, image);
}

}  // namespace digits
