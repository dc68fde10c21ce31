#include "rendezvous/etcd/gateway/json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

namespace distrun::rendezvous::etcd {
namespace {

using nlohmann::json;

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Thrown and caught in this file only.
struct Bad {
  std::string what;
};

std::int64_t number(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  if (!found->is_string()) throw Bad{std::string(name) + " is no number"};
  const std::string& text = found->get_ref<const std::string&>();
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size()) {
    throw Bad{std::string(name) + " is no number: " + text.substr(0, 40)};
  }
  return value;
}

std::string bytes(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return {};
  if (!found->is_string()) throw Bad{std::string(name) + " is no text"};
  auto decoded = from_base64(found->get_ref<const std::string&>());
  if (!decoded) throw Bad{std::string(name) + " is not base64"};
  return *std::move(decoded);
}

bool flag(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

int ttl(const json& object) {
  const std::int64_t seconds = number(object, "TTL");
  if (seconds < 0 || seconds > 1'000'000'000) throw Bad{"TTL is out of range"};
  return static_cast<int>(seconds);
}

Revision revision_of(const json& answer) {
  const auto header = answer.find("header");
  return header == answer.end() ? 0 : number(*header, "revision");
}

KeyValue key_value(const json& entry) {
  if (!entry.is_object()) throw Bad{"a key is no object"};
  KeyValue read;
  read.key = bytes(entry, "key");
  read.value = bytes(entry, "value");
  read.create_revision = number(entry, "create_revision");
  read.lease = number(entry, "lease");
  return read;
}

void read_keys(const json& answer, std::vector<KeyValue>& keys) {
  const auto found = answer.find("kvs");
  if (found == answer.end()) return;
  for (const json& entry : *found) keys.push_back(key_value(entry));
}

json condition(const CreatedAt& created) {
  return {{"key", to_base64(created.key)},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", std::to_string(created.revision)}};
}
json condition(const HasValue& has) {
  return {{"key", to_base64(has.key)},
          {"target", "VALUE"},
          {"result", "EQUAL"},
          {"value", to_base64(has.value)}};
}
json change(const Put& put) {
  json body{{"key", to_base64(put.key)}, {"value", to_base64(put.value)}};
  if (put.lease != 0) body["lease"] = std::to_string(put.lease);
  return {{"request_put", std::move(body)}};
}
json change(const Delete& gone) {
  return {{"request_delete_range", {{"key", to_base64(gone.key)}}}};
}

json body(const Grant& grant) {
  return {{"TTL", std::to_string(grant.ttl_seconds)}};
}
json body(const KeepAlive& keep) {
  return {{"ID", std::to_string(keep.lease)}};
}
json body(const Revoke& revoke) {
  return {{"ID", std::to_string(revoke.lease)}};
}
json body(const Range& range) {
  json built{{"key", to_base64(range.key)}};
  if (!range.end.empty()) built["range_end"] = to_base64(range.end);
  if (range.limit > 0) built["limit"] = std::to_string(range.limit);
  return built;
}
json body(const Transaction& transaction) {
  json built{{"compare", json::array()}, {"success", json::array()}, {"failure", json::array()}};
  for (const Condition& each : transaction.conditions) {
    built["compare"].push_back(std::visit([](const auto& held) { return condition(held); }, each));
  }
  for (const Change& each : transaction.changes) {
    built["success"].push_back(std::visit([](const auto& held) { return change(held); }, each));
  }
  for (const std::string& key : transaction.otherwise) {
    built["failure"].push_back({{"request_range", {{"key", to_base64(key)}}}});
  }
  return built;
}

// A keep-alive's answer is the first of a stream, so it is wrapped.
const json& unwrapped(const json& answer) {
  const auto result = answer.find("result");
  return result == answer.end() ? answer : *result;
}

Answer read(const Grant&, const json& answer) {
  const LeaseId lease = number(answer, "ID");
  if (lease == 0) throw Bad{"ID is missing"};
  return Granted{lease, ttl(answer)};
}
Answer read(const KeepAlive&, const json& answer) {
  const json& kept = unwrapped(answer);
  if (number(kept, "ID") == 0) throw Bad{"ID is missing"};
  return KeptAlive{ttl(kept)};
}
Answer read(const Revoke&, const json&) {
  return Revoked{};
}
Answer read(const Range&, const json& answer) {
  Found found;
  read_keys(answer, found.keys);
  found.more = flag(answer, "more");
  found.revision = revision_of(answer);
  if (found.revision == 0) throw Bad{"header.revision is missing"};
  return found;
}
Answer read(const Transaction&, const json& answer) {
  Transacted done;
  done.succeeded = flag(answer, "succeeded");
  done.revision = revision_of(answer);
  if (done.revision == 0) throw Bad{"header.revision is missing"};
  if (done.succeeded) return done;
  const auto responses = answer.find("responses");
  if (responses == answer.end()) return done;
  for (const json& response : *responses) {
    const auto range = response.find("response_range");
    if (range != response.end()) read_keys(*range, done.keys);
  }
  return done;
}

std::optional<std::string> etcds_error(std::string_view body) {
  const json answer = json::parse(body, nullptr, false);
  if (!answer.is_object()) return std::nullopt;
  for (const char* name : {"error", "message"}) {
    const auto found = answer.find(name);
    if (found == answer.end()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (!found->is_object()) continue;
    const auto message = found->find("message");
    if (message != found->end() && message->is_string()) return message->get<std::string>();
  }
  return std::nullopt;
}

// As it may stand in a message.
std::string plain(std::string_view text) {
  std::string line;
  for (const char byte : text.substr(0, kMaxError)) line += byte >= ' ' && byte <= '~' ? byte : '?';
  return line;
}

Error not_etcd(const std::string& what) {
  return Error{Errc::protocol, "its answer is none of etcd's v3 gateway: " + plain(what)};
}

}  // namespace

std::string path_of(const Request& request) {
  struct {
    std::string operator()(const Grant&) const { return "/v3/lease/grant"; }
    std::string operator()(const KeepAlive&) const { return "/v3/lease/keepalive"; }
    std::string operator()(const Revoke&) const { return "/v3/lease/revoke"; }
    std::string operator()(const Range&) const { return "/v3/kv/range"; }
    std::string operator()(const Transaction&) const { return "/v3/kv/txn"; }
  } const paths;
  return std::visit(paths, request);
}

std::string body_of(const Request& request) {
  return std::visit([](const auto& held) { return body(held); }, request).dump();
}

Result<Answer> answer_from(const Request& request, std::string_view text) try {
  const json answer = json::parse(text);
  if (!answer.is_object()) return not_etcd("no object");
  return std::visit([&](const auto& held) { return read(held, answer); }, request);
} catch (const Bad& bad) {
  return not_etcd(bad.what);
} catch (const json::exception& fault) {
  return not_etcd(fault.what());
}

std::string login_body(const std::string& user, const std::string& password) {
  // A password may be any bytes; JSON cannot say all of them.
  return json{{"name", user}, {"password", password}}.dump(-1, ' ', false,
                                                           json::error_handler_t::replace);
}

Result<std::string> token_from(std::string_view text) try {
  const json answer = json::parse(text);
  const auto found = answer.is_object() ? answer.find("token") : answer.end();
  if (found == answer.end() || !found->is_string()) return not_etcd("token is missing");
  const std::string& token = found->get_ref<const std::string&>();
  // It becomes part of a head.
  const bool plain =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.empty() || !plain) return not_etcd("token is no word");
  return token;
} catch (const json::exception& fault) {
  return not_etcd(fault.what());
}

std::string watch_body(const std::string& key, Revision from) {
  const json create{{"key", to_base64(key)}, {"start_revision", std::to_string(from)}};
  return json{{"create_request", create}}.dump();
}

Result<WatchLine> watch_line_from(std::string_view text) try {
  const json answer = json::parse(text);
  if (!answer.is_object()) return not_etcd("no object");
  WatchLine line;
  const auto result = answer.find("result");
  if (result == answer.end()) {
    line.ended = error_from(text);
    return line;
  }
  const auto events = result->find("events");
  if (events != result->end()) {
    for (const json& event : *events) {
      const auto type = event.find("type");
      if (type != event.end() && *type == "DELETE") {
        line.changes.emplace_back(std::nullopt);
      } else {
        line.changes.emplace_back(key_value(event.at("kv")));
      }
    }
  }
  if (flag(*result, "canceled")) {
    line.ended =
        number(*result, "compact_revision") != 0 ? "its beginning is compacted" : "canceled";
  }
  return line;
} catch (const Bad& bad) {
  return not_etcd(bad.what);
} catch (const json::exception& fault) {
  return not_etcd(fault.what());
}

std::string error_from(std::string_view body) {
  const auto own = etcds_error(body);
  const std::string said = own ? plain(*own) : plain(body.substr(0, 60));
  return said.empty() ? "nothing" : said;
}

bool is_error_of_etcd(std::string_view body) {
  return etcds_error(body).has_value();
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kAlphabet[group >> (18U - 6U * k) & 63U];
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t padding = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char symbol = text[i + k];
      const bool may_end = i + 4 == text.size() && k >= 2;
      if (symbol == '=' && may_end) {
        ++padding;
        group <<= 6U;
        continue;
      }
      const std::size_t at = kAlphabet.find(symbol);
      if (at == std::string_view::npos || padding > 0) return std::nullopt;
      group = group << 6U | static_cast<std::uint32_t>(at);
    }
    for (std::size_t k = 0; k + padding < 3; ++k) {
      bytes += static_cast<char>(group >> (16U - 8U * k) & 255U);
    }
  }
  return bytes;
}

}  // namespace distrun::rendezvous::etcd
