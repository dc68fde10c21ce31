#include "rendezvous/protocol/json_fields.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace distrun::rendezvous {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Deeper values are none of ours, and are dropped while they are read.
constexpr int kMaxDepth = 8;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the UTF-8 character that `text` begins with; 0: it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = byte(0);
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;   // no overlong forms
    const unsigned high = first == 0xED ? 0x9F : 0xBF;  // no surrogates
    return byte(1) >= low && byte(1) <= high && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xF4 ? 0x8F : 0xBF;  // U+10FFFF is the last
    return byte(1) >= low && byte(1) <= high && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

// As UTF-8, and at most `max` bytes of it.
std::string clean(std::string_view text, std::size_t max) {
  std::string out;
  out.reserve(std::min(text.size(), max));
  while (!text.empty()) {
    const std::size_t n = character_bytes(text);
    const std::string_view character = n > 0 ? text.substr(0, n) : kReplacement;
    if (out.size() + character.size() > max) break;
    out += character;
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

// As it may be shown in a sentence.
std::string shown(const Json& value) {
  constexpr std::size_t kShown = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

}  // namespace

// ---- writer ------------------------------------------------------------------------------------

struct FieldWriter::Document {
  OrderedJson root = OrderedJson::object();
  std::vector<OrderedJson*> open{&root};  // the innermost last

  OrderedJson& add(std::string_view name, OrderedJson value) {
    OrderedJson& parent = *open.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    return parent[std::string(name)] = std::move(value);
  }
};

FieldWriter::FieldWriter() : document_(std::make_unique<Document>()) {}
FieldWriter::~FieldWriter() = default;

void FieldWriter::put(std::string_view name, std::int64_t value) {
  document_->add(name, value);
}

void FieldWriter::flag(std::string_view name, bool value) {
  document_->add(name, value);
}

void FieldWriter::duration(std::string_view name, Duration value) {
  const Duration within = std::clamp(value, Duration::zero(), kMaxDuration);
  put(name, std::chrono::duration_cast<std::chrono::microseconds>(within).count());
}

void FieldWriter::text(std::string_view name, std::string_view value, std::size_t max, Text kind) {
  const bool cut = kind == Text::free;
  document_->add(name, clean(value, cut ? max : std::numeric_limits<std::size_t>::max()));
}

void FieldWriter::texts(std::string_view name, const std::vector<std::string>& values,
                        std::size_t /*max_count*/, std::size_t max_bytes) {
  enter_list(name);
  for (const auto& value : values) text("", value, max_bytes, Text::name);
  leave();
}

// A pointer into the document stays good while it is open: its parent grows no further meanwhile.
void FieldWriter::enter(std::string_view name) {
  document_->open.push_back(&document_->add(name, OrderedJson::object()));
}

void FieldWriter::enter_list(std::string_view name) {
  document_->open.push_back(&document_->add(name, OrderedJson::array()));
}

void FieldWriter::leave() {
  document_->open.pop_back();
}

std::string FieldWriter::finish() const {
  return document_->root.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// ---- reader ------------------------------------------------------------------------------------

struct FieldReader::Document {  // NOLINT(bugprone-exception-escape): its move ends in abort anyway
  struct Place {
    const Json* value;
    std::string name;
  };
  Json root;
  std::vector<Place> open;  // the innermost last; the root first, without a name

  const Json* find(std::string_view name) const {
    const Json& parent = *open.back().value;
    const auto found = parent.find(name);
    return found == parent.end() || found->is_null() ? nullptr : &*found;
  }
};

FieldReader::FieldReader(std::string_view text) : document_(std::make_unique<Document>()) {
  const auto not_too_deep = [](int depth, Json::parse_event_t event, Json&) {
    const bool begins =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    return !begins || depth <= kMaxDepth;
  };
  document_->root = Json::parse(text.begin(), text.end(), not_too_deep, /*allow_exceptions=*/false);
  if (!document_->root.is_object()) {
    fail("", "not a JSON object");
    document_->root = Json::object();
  }
  document_->open.push_back({&document_->root, ""});
}

FieldReader::~FieldReader() = default;

void FieldReader::fail(std::string_view field, const std::string& sentence) {
  if (error_) return;
  std::string where;
  const auto add = [&where](std::string_view name) {
    if (!where.empty() && !name.empty() && name[0] != '[') where += '.';
    where += name;
  };
  for (const auto& place : document_->open) add(place.name);
  add(field);
  error_ = Error{Errc::protocol, where.empty() ? sentence : where + ": " + sentence};
}

bool FieldReader::has(std::string_view name) const {
  return document_->find(name) != nullptr;
}

std::int64_t FieldReader::get(std::string_view name, std::int64_t min, std::int64_t max) {
  const Json* value = document_->find(name);
  if (value == nullptr) {
    fail(name, "missing");
    return min;
  }
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <=
                         static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (fits) {
    const auto number = value->get<std::int64_t>();
    if (number >= min && number <= max) return number;
  }
  fail(name, "not in " + std::to_string(min) + ".." + std::to_string(max) + ": " + shown(*value));
  return min;
}

void FieldReader::flag(std::string_view name, bool& value) {
  const Json* found = document_->find(name);
  if (found == nullptr) return fail(name, "missing");
  if (!found->is_boolean()) return fail(name, "not true or false: " + shown(*found));
  value = found->get<bool>();
}

void FieldReader::duration(std::string_view name, Duration& value) {
  const auto max = std::chrono::duration_cast<std::chrono::microseconds>(kMaxDuration).count();
  value = std::chrono::microseconds(get(name, 0, max));
}

void FieldReader::text(std::string_view name, std::string& value, std::size_t max, Text kind) {
  const Json* found = document_->find(name);
  if (found == nullptr) return fail(name, "missing");
  if (!found->is_string()) return fail(name, "not a text: " + shown(*found));
  const auto& held = found->get_ref<const std::string&>();
  if (held.size() > max)
    return fail(name, std::to_string(held.size()) + " bytes, at most " + std::to_string(max));
  if (kind == Text::name && has_control_character(held))
    return fail(name, name == "token" ? "has a control character"  // and is a secret
                                      : "has a control character: " + shown(*found));
  value = held;
}

void FieldReader::texts(std::string_view name, std::vector<std::string>& values,
                        std::size_t max_count, std::size_t max_bytes) {
  const std::size_t count = enter_list(name, max_count);
  values.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const Json& element = (*document_->open.back().value)[i];
    const std::string* held = element.get_ptr<const std::string*>();
    if (held == nullptr) {
      fail("", "not a text: " + shown(element));
    } else if (held->size() > max_bytes) {
      fail("", "a text of " + std::to_string(held->size()) + " bytes, at most " +
                   std::to_string(max_bytes));
    } else if (has_control_character(*held)) {
      fail("", "has a control character: " + shown(element));
    } else {
      values.push_back(*held);
    }
  }
  leave_list();
}

std::size_t FieldReader::index(std::string_view name, std::span<const std::string_view> names) {
  const Json* found = document_->find(name);
  if (found == nullptr) {
    fail(name, "missing");
    return 0;
  }
  const std::string* held = found->get_ptr<const std::string*>();
  const auto at = held == nullptr ? names.end() : std::find(names.begin(), names.end(), *held);
  if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
  fail(name, "not known to this version: " + shown(*found));
  return 0;
}

bool FieldReader::enter(std::string_view name) {
  const Json* found = document_->find(name);
  if (found == nullptr || !found->is_object()) {
    fail(name, found == nullptr ? "missing" : "not an object: " + shown(*found));
    return false;
  }
  document_->open.push_back({found, std::string(name)});
  return true;
}

// 0 after an error; a leave_list is owed in any case.
std::size_t FieldReader::enter_list(std::string_view name, std::size_t max) {
  static const Json kNone = Json::array();
  const Json* found = document_->find(name);
  if (found == nullptr) {
    fail(name, "missing");
  } else if (!found->is_array()) {
    fail(name, "not a list: " + shown(*found));
  } else if (found->size() > max) {
    fail(name, std::to_string(found->size()) + " elements, at most " + std::to_string(max));
  }
  document_->open.push_back({error_ ? &kNone : found, std::string(name)});
  return document_->open.back().value->size();
}

bool FieldReader::enter_element(std::size_t i) {
  const Json& element = (*document_->open.back().value)[i];
  if (!element.is_object()) {
    fail("", "not an object: " + shown(element));
    return false;
  }
  document_->open.push_back({&element, "[" + std::to_string(i) + "]"});
  return true;
}

void FieldReader::leave() {
  document_->open.pop_back();
}

void FieldReader::leave_list() {
  document_->open.pop_back();
}

}  // namespace distrun::rendezvous
