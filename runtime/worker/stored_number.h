// What Store::add makes of a stored text: decimal, leading blanks and a sign allowed, what follows
// the digits ignored.  PyTorch's stores read it so, and scripts rely on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace distrun {

// nullopt: no number, or one that does not fit.
std::optional<std::int64_t> stored_number(const std::string& text);

// The sum as it is stored; wraps at the ends of int64.  An empty text counts as 0.
// Throws DistStoreError, naming `key`, if `text` is not a number.
std::int64_t add_to_stored(const std::string& key, const std::string& text, std::int64_t delta);

}  // namespace distrun
