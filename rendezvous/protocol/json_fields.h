// FieldWriter and FieldReader: plain structs to JSON and back, by one description of their fields
// (fields.h), so that what is written and what is read cannot differ.
//
//   template <class A> void fields(A& a, Subject<A, Pong>& pong) {
//     a.integer("number", pong.number, 0, kMaxNumber);
//   }
//
// A reader checks every value against its range and keeps the first error, with the way to the
// field in it: "terms.min_nodes: not in 1..65536: 0".  After an error it goes on, and what it fills
// in means nothing.  A member that is null is missing; members that nobody asks for are ignored.
// Neither throws.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace distrun::rendezvous {

// What a description is given: the struct to fill in, or the one to write.
template <class A, class T>
using Subject = std::conditional_t<A::kReads, T, const T>;

// A span of time is a whole number of microseconds on the wire; there is none above ten years.
inline constexpr Duration kMaxDuration = std::chrono::hours(24 * 3650);

enum class Text {
  name,  // no control characters: it may come to a terminal.  Too long is an error
  free,  // for people or for comparison; the writer cuts what is too long
};

class FieldWriter {
 public:
  static constexpr bool kReads = false;

  FieldWriter();
  ~FieldWriter();
  FieldWriter(const FieldWriter&) = delete;
  FieldWriter& operator=(const FieldWriter&) = delete;

  template <class T>
  void integer(std::string_view name, const T& value, std::int64_t /*min*/, std::int64_t /*max*/) {
    put(name, static_cast<std::int64_t>(value));
  }
  void number(std::string_view name, std::int64_t value) { put(name, value); }
  void flag(std::string_view name, bool value);
  void duration(std::string_view name, Duration value);
  void text(std::string_view name, std::string_view value, std::size_t max, Text kind);
  template <class E>
  void choice(std::string_view name, const E& value, std::span<const std::string_view> names) {
    const std::string_view chosen = names[static_cast<std::size_t>(value)];
    text(name, chosen, chosen.size(), Text::name);
  }
  template <class T>
  void object(std::string_view name, const T& value) {
    enter(name);
    fields(*this, value);
    leave();
  }
  template <class T, class Describe>
  void maybe(std::string_view /*name*/, const std::optional<T>& value, Describe describe) {
    if (value) describe(*value);
  }
  // Of objects.
  template <class T>
  void list(std::string_view name, const std::vector<T>& values, std::size_t /*max*/) {
    enter_list(name);
    for (const T& value : values) {
      enter("");
      fields(*this, value);
      leave();
    }
    leave();
  }
  void texts(std::string_view name, const std::vector<std::string>& values, std::size_t max_count,
             std::size_t max_bytes);
  void expect(bool /*holds*/, std::string_view /*sentence*/) {}

  // One line.
  std::string finish() const;

 private:
  struct Document;
  void put(std::string_view name, std::int64_t value);
  void enter(std::string_view name);
  void enter_list(std::string_view name);
  void leave();
  std::unique_ptr<Document> document_;
};

class FieldReader {
 public:
  static constexpr bool kReads = true;

  // `text`: one JSON object.
  explicit FieldReader(std::string_view text);
  ~FieldReader();
  FieldReader(const FieldReader&) = delete;
  FieldReader& operator=(const FieldReader&) = delete;

  template <class T>
  void integer(std::string_view name, T& value, std::int64_t min, std::int64_t max) {
    value = static_cast<T>(get(name, min, max));
  }
  void flag(std::string_view name, bool& value);
  void duration(std::string_view name, Duration& value);
  void text(std::string_view name, std::string& value, std::size_t max, Text kind);
  template <class E>
  void choice(std::string_view name, E& value, std::span<const std::string_view> names) {
    value = static_cast<E>(index(name, names));
  }
  template <class T>
  void object(std::string_view name, T& value) {
    if (!enter(name)) return;
    fields(*this, value);
    leave();
  }
  template <class T, class Describe>
  void maybe(std::string_view name, std::optional<T>& value, Describe describe) {
    value.reset();
    if (has(name)) describe(value.emplace());
  }
  template <class T>
  void list(std::string_view name, std::vector<T>& values, std::size_t max) {
    const std::size_t count = enter_list(name, max);
    values.assign(count, T{});
    for (std::size_t i = 0; i < count; ++i) {
      if (!enter_element(i)) break;
      fields(*this, values[i]);
      leave();
    }
    leave_list();
  }
  void texts(std::string_view name, std::vector<std::string>& values, std::size_t max_count,
             std::size_t max_bytes);
  // What must hold between fields.
  void expect(bool holds, std::string_view sentence) {
    if (!holds) fail("", std::string(sentence));
  }

  // Which of `names` the member holds; an error if none.
  std::size_t index(std::string_view name, std::span<const std::string_view> names);
  const std::optional<Error>& error() const { return error_; }

 private:
  struct Document;
  bool has(std::string_view name) const;
  std::int64_t get(std::string_view name, std::int64_t min, std::int64_t max);
  bool enter(std::string_view name);
  std::size_t enter_list(std::string_view name, std::size_t max);
  bool enter_element(std::size_t i);
  void leave();
  void leave_list();
  void fail(std::string_view field, const std::string& sentence);

  std::unique_ptr<Document> document_;
  std::optional<Error> error_;
};

}  // namespace distrun::rendezvous
