// A real store server in a thread of the test.
#pragma once

#include "rendezvous/server/store_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace distrun::testing {

class StoreServerThread {
 public:
  explicit StoreServerThread(const std::string& address = "127.0.0.1") {
    auto server = rendezvous::StoreServer::listen(io_, {.address = address, .port = 0});
    if (!server) throw std::runtime_error(server.error().detail);
    server_ = std::move(*server);
    port_ = server_->port();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~StoreServerThread() { stop(); }

  std::uint16_t port() const { return port_; }

  void stop() {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] {
      server_->close();
      work_.reset();
    });
    thread_.join();
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::unique_ptr<rendezvous::StoreServer> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace distrun::testing
