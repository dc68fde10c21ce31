// World: one seeded run: nodes, coordinators, the network between them, and what goes wrong.
#pragma once

#include "tests/sim/rendezvous/node.h"
#include "tests/sim/rendezvous/plan.h"
#include "tests/sim/rendezvous/referee.h"
#include "tests/sim/rendezvous/seat.h"
#include "tests/sim/rendezvous/stage.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace distrun::rendezvous::sim {

// The daemon's process: a seat at the endpoint and its journal.
class Daemon final : public Program {
 public:
  Daemon(Stage& stage, HostId host) : stage_(stage), host_(host) {}
  void start();
  void kill();
  bool alive() const { return seat_ && stage_.network.alive(seat_->process()); }
  Seat* seat() const { return seat_.get(); }
  HostId host() const { return host_; }

  void accepted(SocketId socket, std::uint16_t) override { seat_->accepted(socket); }
  void connected(int, SocketId) override {}
  void not_connected(int, NoAnswer) override {}
  void received(SocketId socket, const Payload& payload) override {
    seat_->received(socket, payload);
  }
  void closed(SocketId socket) override { seat_->closed(socket); }

 private:
  Stage& stage_;
  HostId host_;
  Journal journal_;
  std::unique_ptr<Seat> seat_;
};

// A process that has no business here.
class Stranger final : public Program {
 public:
  Stranger(Stage& stage, HostId host, const Contact& endpoint, int kind);
  void accepted(SocketId, std::uint16_t) override {}
  void connected(int, SocketId socket) override;
  void not_connected(int, NoAnswer) override {}
  void received(SocketId, const Payload&) override {}
  void closed(SocketId) override {}

 private:
  Stage& stage_;
  int kind_;
};

class World {
 public:
  World(std::uint64_t seed, Coverage& coverage, bool tell = false);
  // Empty, or the sentence that does not hold.
  std::string run();

  std::string story() const;
  std::uint64_t fingerprint() const { return transcript_.fingerprint(); }
  long steps() const { return steps_; }

 private:
  void step_until(TimePoint end);
  void start_node(NodePlan plan);
  void restart_node_on(HostId host, Duration after);
  void strike(const Fault& fault);
  void cut(HostId from, HostId to, Duration lasts);
  void kill_node(Node& node);
  void crash_host(HostId host);
  void boot_host(HostId host);
  void pause(ProcessId process, HostId host, Duration lasts);
  Node* living_node(int number);
  Node* hosting_node();
  void end_faults();
  void check_settled();
  void check_all_gone();
  bool all_gone() const;

  distrun::sim::Random random_;
  Plan plan_;
  Agenda agenda_;
  Network network_;
  Transcript transcript_;
  Coverage& coverage_;
  Referee referee_;
  Stage stage_;
  Contact endpoint_;
  std::unique_ptr<Daemon> daemon_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
  int next_id_ = 1;
  int hosts_ = 0;
  bool faults_over_ = false;
  long steps_ = 0;
};

}  // namespace distrun::rendezvous::sim
