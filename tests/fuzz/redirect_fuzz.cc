// Any text as --redirects: what is taken can be written down again and then means the same.
#include "launcher/redirects.h"
#include "runtime/base/check.h"

#include <cstdint>
#include <string>
#include <string_view>

using namespace distrun::launcher;

namespace {

char digit(distrun::agent::StreamSet streams) {
  return static_cast<char>('0' + (streams.out ? 1 : 0) + (streams.err ? 2 : 0));
}

std::string written(const Redirects& redirects) {
  if (redirects.by_rank.empty()) return {digit(redirects.all)};
  std::string text;
  for (const auto& [rank, streams] : redirects.by_rank) {
    if (!text.empty()) text += ',';
    text += std::to_string(rank) + ':' + digit(streams);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto redirects = parse_redirects({reinterpret_cast<const char*>(data), size});
  if (!redirects) {
    DISTRUN_CHECK(!redirects.error().detail.empty());
    DISTRUN_CHECK(redirects.error().detail.size() < 500);
    return 0;
  }
  const auto again = parse_redirects(written(*redirects));
  DISTRUN_CHECK(again.has_value() && *again == *redirects);
  DISTRUN_CHECK(expand(*redirects, 16).size() == 16);
  return 0;
}
