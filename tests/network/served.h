// A server on a free loopback port, in a thread of its own, with what it logs.
#pragma once

#include "runtime/base/log.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace distrun::rendezvous {

// Server: has listen(io, Options), port() and close().
template <class Server, class Options>
class Served {
 public:
  explicit Served(const Options& options = {}) {
    log::set_sink([this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    });
    auto listening = Server::listen(io_, options);
    if (!listening) throw std::runtime_error(listening.error().detail);
    server_ = std::move(*listening);
    port_ = server_->port();
  }
  ~Served() {
    close();
    log::set_sink({});
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  void start() {
    thread_ = std::thread([this] { io_.run(); });
  }
  void close() {
    if (!thread_.joinable()) return;
    boost::asio::post(io_, [this] { server_->close(); });
    thread_.join();
  }
  std::uint16_t port() const { return port_; }

  // Lines that contain `text`; waits for the first.
  std::size_t logged(std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      std::size_t n = 0;
      {
        const std::lock_guard lock(mutex_);
        for (const auto& line : lines_) n += line.find(text) != std::string::npos ? 1 : 0;
      }
      if (n > 0 || std::chrono::steady_clock::now() > deadline) return n;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  boost::asio::io_context io_{1};
  std::unique_ptr<Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace distrun::rendezvous
