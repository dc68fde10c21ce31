// Connection: one accepted socket with a bounded queue of what is to be written, one deadline, and
// an end in order.
//
//   open --finish()--> finishing --all written, the peer has closed, or out of patience--> closed
//     \------ peer gone, deadline, queue too long, close() --------------------------------/
//
// What is written is tried at once and only left to the event loop when the socket is full. Nothing
// is kept for reading: bytes are handed on as they come.
#pragma once

#include "rendezvous/server/listener.h"
#include "runtime/base/time.h"
#include "runtime/wire/byte_buffer.h"

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace distrun::rendezvous {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Callbacks {
    std::function<void(std::string_view bytes)> received;
    // Its end for its owner: at most once, never from within close(), finish() or release().
    std::function<void(const std::string& why)> lost;
  };
  // `ended` is called when the socket is closed or released, for whatever reason.
  Connection(boost::asio::io_context& io, Socket socket, std::string peer,
             std::function<void()> ended);

  // Who hears of it from now on.  May be called from within a callback.
  void set_callbacks(Callbacks callbacks);
  void start();
  // Lost with `why` after so long, unless it is told another deadline, or none.
  void set_deadline(Duration patience, std::string why);
  void clear_deadline();

  // Lost if more than `max_unsent` wait to be written.
  void send(std::string_view bytes, std::size_t max_unsent);
  // Writes what is queued, tells the peer that nothing follows, and waits for it to close, so that
  // the last words are read, all within `patience`.  No more callbacks to the owner.
  void finish(Duration patience = std::chrono::seconds(2));
  // At once.  No more callbacks.  Idempotent.
  void close();
  // The socket, for another reader.  Only from within `received`.
  Socket release();

  const std::string& peer() const { return peer_; }
  boost::asio::ip::tcp::endpoint local_endpoint() const;
  boost::asio::ip::tcp::endpoint remote_endpoint() const;

 private:
  using Timer =
      boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                        boost::asio::wait_traits<std::chrono::steady_clock>,
                                        boost::asio::io_context::executor_type>;
  void read();
  void on_readable(const boost::system::error_code& failure);
  void flush();
  void on_writable(const boost::system::error_code& failure);
  void say_goodbye();
  void lose(const std::string& why);

  Socket socket_;
  Timer timer_;
  std::string peer_;
  std::function<void()> ended_;
  std::shared_ptr<const Callbacks> callbacks_;  // shared: may be replaced while one runs
  wire::ByteBuffer outbox_;
  bool awaiting_readable_ = false;
  bool awaiting_writable_ = false;
  bool finishing_ = false;
  bool peer_has_finished_ = false;
  bool closed_ = false;
};

}  // namespace distrun::rendezvous
