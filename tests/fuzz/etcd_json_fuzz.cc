// libFuzzer on what etcd's JSON gateway, or whoever is in its place, answers.  Whatever the bytes
// are:
//   * an answer is of the kind that was asked for, or an error of one bounded line;
//   * so is a line of a watch, and a token, which is a word that can stand in a head;
//   * any bytes are a key, a value and a password that can be asked with.
// Input: one byte that picks what was asked, then the answer.
#include "rendezvous/etcd/gateway/json.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace distrun::rendezvous::etcd {
namespace {

bool is_line(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

void check_error(const Error& error) {
  DISTRUN_CHECK(error.detail.size() < 2 * kMaxError && is_line(error.detail));
}

// The alternative of Answer that a request's index has: the two are declared in the same order.
void check_answer(const Request& request, std::string_view text) {
  const auto answer = answer_from(request, text);
  if (!answer) return check_error(answer.error());
  DISTRUN_CHECK(answer->index() == request.index());
  if (const auto* granted = std::get_if<Granted>(&*answer))
    DISTRUN_CHECK(granted->lease != 0 && granted->ttl_seconds >= 0);
  if (const auto* kept = std::get_if<KeptAlive>(&*answer)) DISTRUN_CHECK(kept->ttl_seconds >= 0);
  if (const auto* found = std::get_if<Found>(&*answer)) DISTRUN_CHECK(found->revision != 0);
}

void check_watch(std::string_view text) {
  const auto line = watch_line_from(text);
  if (!line) return check_error(line.error());
  if (line->ended) DISTRUN_CHECK(!line->ended->empty() && is_line(*line->ended));
}

void check_token(std::string_view text) {
  const auto token = token_from(text);
  if (!token) return check_error(token.error());
  DISTRUN_CHECK(!token->empty() && is_line(*token) && token->find(' ') == std::string::npos);
}

void check_requests(const std::string& bytes) {
  DISTRUN_CHECK(from_base64(to_base64(bytes)) == bytes);
  Transaction transaction;
  transaction.conditions.emplace_back(HasValue{bytes, bytes});
  transaction.changes.emplace_back(Put{bytes, bytes, 1});
  transaction.otherwise = {bytes};
  DISTRUN_CHECK(is_line(body_of(transaction)) && is_line(body_of(Range{bytes, bytes, 1})));
  DISTRUN_CHECK(!login_body(bytes, bytes).empty());
}

}  // namespace
}  // namespace distrun::rendezvous::etcd

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distrun::rendezvous::etcd;
  if (size < 1) return 0;
  const Request requests[] = {Grant{}, KeepAlive{}, Revoke{}, Range{}, Transaction{}};
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  check_answer(requests[data[0] % 5], text);
  check_watch(text);
  check_token(text);
  const std::string error = error_from(text);
  DISTRUN_CHECK(!error.empty() && error.size() <= kMaxError && is_line(error));
  (void)is_error_of_etcd(text);
  check_requests(std::string(text));
  return 0;
}
