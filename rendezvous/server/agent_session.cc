#include "rendezvous/server/agent_session.h"

#include "runtime/base/log.h"

#include <utility>

namespace distrun::rendezvous {

AgentSession::AgentSession(std::shared_ptr<Connection> connection, Duration join_within,
                           Callbacks callbacks)
    : connection_(std::move(connection)),
      join_within_(join_within),
      callbacks_(std::move(callbacks)) {}

void AgentSession::start(std::string_view first) {
  // The connection's callbacks do not keep the session: its owner does.
  connection_->set_callbacks({.received =
                                  [weak = weak_from_this()](std::string_view bytes) {
                                    if (const auto self = weak.lock()) self->on_bytes(bytes);
                                  },
                              .lost =
                                  [weak = weak_from_this()](const std::string& why) {
                                    if (const auto self = weak.lock()) self->on_lost(why);
                                  }});
  connection_->set_deadline(join_within_, "no Join within " + duration_text(join_within_));
  const auto self = shared_from_this();
  on_bytes(first);
}

void AgentSession::on_bytes(std::string_view bytes) {
  decoder_.feed(bytes);
  read_messages();
}

void AgentSession::read_messages() {
  while (!over_) {
    const auto payload = decoder_.next();
    if (decoder_.greeted()) greet();
    if (over_) return;
    if (!payload) return refuse(payload.error());
    if (!payload->has_value()) return;
    if (auto taken = take(**payload); !taken) return refuse(taken.error());
  }
}

Result<void> AgentSession::take(std::string_view payload) {
  auto message = decode_agent_message(payload);
  if (!message) return message.error();
  if (!joined_) {
    if (!std::holds_alternative<Join>(*message))
      return Error{Errc::protocol, "the first message is no join"};
    joined_ = true;
    connection_->clear_deadline();
  }
  callbacks_.received(std::move(*message));
  return {};
}

void AgentSession::greet() {
  if (std::exchange(greeted_, true)) return;
  connection_->send(greeting(), kMaxUnsentBytes);
}

void AgentSession::send(const CoordinatorMessage& message) {
  if (!over_) connection_->send(encode(message), kMaxUnsentBytes);
}

void AgentSession::refuse(const Error& error) {
  log::warn("closed an agent's connection",
            {{"peer", connection_->peer()}, {"reason", error.detail}});
  // Something else than an agent is not spoken to.
  if (decoder_.greeted() || error.code == Errc::unsupported) {
    greet();
    Refused refused;
    refused.code = RefusalCode::version;
    refused.why = "the coordinator does not understand this node: " + error.detail;
    send(refused);
  }
  if (over_) return;  // it was lost while we wrote
  connection_->finish();
  end();
}

void AgentSession::drop() {
  if (over_) return;
  over_ = true;
  connection_->finish();
}

void AgentSession::close() {
  if (over_) return;
  over_ = true;
  connection_->close();
}

void AgentSession::on_lost(const std::string& why) {
  if (over_) return;
  log::debug("an agent's connection ended", {{"peer", connection_->peer()}, {"reason", why}});
  end();
}

void AgentSession::end() {
  over_ = true;
  callbacks_.closed();
}

}  // namespace distrun::rendezvous
