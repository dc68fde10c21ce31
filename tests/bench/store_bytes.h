// The TCPStore requests that store_load sends, as bytes, for the two protocols it speaks: "g0" is
// PyTorch 1.13 (no hello, numbers from 0), "g4" is everything since (VALIDATE first, numbers from
// 1).
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace distrun::bench {

class StoreBytes {
 public:
  explicit StoreBytes(bool g0) : shift_(g0 ? 0 : 1) {}

  // What a client says first.
  std::string hello() const { return shift_ == 0 ? "" : std::string("\0\xce\xf7\x85\x3c", 5); }

  std::string set(std::string_view key, std::string_view value) const {
    return type(0) + blob(key) + blob(value);
  }
  std::string get(std::string_view key) const { return type(2) + blob(key); }
  std::string check(std::string_view key) const { return type(4) + number(1) + blob(key); }
  std::string wait(std::string_view key) const { return type(5) + number(1) + blob(key); }

  static std::string blob(std::string_view bytes) {
    return number(bytes.size()) + std::string(bytes);
  }

 private:
  std::string type(int g0_number) const {
    return std::string(1, static_cast<char>(g0_number + shift_));
  }
  static std::string number(std::uint64_t value) {
    std::string made(sizeof value, '\0');
    std::memcpy(made.data(), &value, sizeof value);
    return made;
  }

  int shift_;
};

inline constexpr char kReady = '\0';     // CHECK: all keys exist.
inline constexpr char kNotReady = '\1';  // CHECK: one does not.
inline constexpr char kReleased = '\0';  // WAIT: satisfied.

}  // namespace distrun::bench
