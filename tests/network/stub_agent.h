// An agent for tests: says exactly what it is told to, answers pings while it waits for something
// else, and its every wait ends.
#pragma once

#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/frame.h"
#include "tests/network/store_client.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace distrun::rendezvous {

inline Join join_of(std::string job, std::string host, int nodes) {
  Join join;
  join.job = std::move(job);
  join.host = std::move(host);
  join.node = join.host + ".1.1";
  join.address = "127.0.0.1";
  join.store_port = 40'001;
  join.terms.min_nodes = nodes;
  join.terms.max_nodes = nodes;
  join.terms.beat = std::chrono::seconds(10);
  return join;
}

class StubAgent {
 public:
  explicit StubAgent(std::uint16_t port, const char* address = "127.0.0.1")
      : socket_(port, address) {}
  // Greets and joins.
  StubAgent(std::uint16_t port, const Join& join) : StubAgent(port) { say(join); }

  StoreClient& socket() { return socket_; }
  bool say(const AgentMessage& message) {
    const std::string before = std::exchange(greeted_, true) ? "" : std::string(greeting());
    return socket_.send(before + encode(message));
  }

  // The next message that is no ping; nullopt: closed, silent for too long, or not understood.
  std::optional<CoordinatorMessage> hear() {
    for (;;) {
      auto message = hear_one();
      if (!message || !std::holds_alternative<Ping>(*message)) return message;
    }
  }
  // The next of that kind; those of other kinds are passed over.
  template <class Message>
  std::optional<Message> await() {
    while (const auto message = hear())
      if (const Message* wanted = std::get_if<Message>(&*message)) return *wanted;
    return std::nullopt;
  }

  // Answers the pings that are here or on their way.
  void hear_pings() {
    while (!socket_.hears_nothing())
      if (!hear_one()) return;
  }
  // What came so far, and comes in a short while, is pings, whenever they were sent.
  bool hears_only_pings() {
    while (!socket_.hears_nothing()) {
      const auto message = hear_one();
      if (!message || !std::holds_alternative<Ping>(*message)) return false;
    }
    return true;
  }

 private:
  std::optional<CoordinatorMessage> hear_one() {
    if (!std::exchange(heard_greeting_, true) && socket_.receive(kGreetingBytes) != greeting())
      return std::nullopt;
    const std::string header = socket_.receive(kFrameHeaderBytes);
    if (header.size() < kFrameHeaderBytes) return std::nullopt;
    std::size_t size = 0;
    for (const char byte : header) size = size << 8U | static_cast<unsigned char>(byte);
    const auto message = decode_coordinator_message(socket_.receive(size));
    if (!message) return std::nullopt;
    if (const Ping* ping = std::get_if<Ping>(&*message)) say(Pong{ping->number});
    return *message;
  }

  StoreClient socket_;
  bool greeted_ = false;
  bool heard_greeting_ = false;
};

}  // namespace distrun::rendezvous
