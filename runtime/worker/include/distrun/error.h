// What the worker library throws.  Each error is a DistError: its kind() is for the program, its
// what() is one sentence for a person, naming the thing, the peer, the key and the value.
// Where one rank is to blame, peer_rank() is that rank.
//
//   try { group->all_reduce(gradients); }
//   catch (const distrun::DistError& error) { if (error.peer_rank()) …; throw; }
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

namespace distrun {

enum class ErrorKind {
  invalid_argument,  // the caller gave something that cannot be; nothing was sent
  unsupported,       // understood, and not to be had with this store, server or build
  store,             // a store refused, or its data is not what it should be
  queue_empty,       // a non-blocking pop of an empty queue
  timeout,           // a deadline passed
  network,           // a server cannot be reached, or its connection was lost
  backend,           // a collective failed; its group is of no more use
};

class DistError : public std::runtime_error {
 public:
  DistError(ErrorKind kind, const std::string& what, std::optional<int> peer_rank = std::nullopt)
      : std::runtime_error(what), kind_(kind), peer_rank_(peer_rank) {}

  ErrorKind kind() const { return kind_; }
  std::optional<int> peer_rank() const { return peer_rank_; }

 private:
  ErrorKind kind_;
  std::optional<int> peer_rank_;
};

class DistArgumentError : public DistError {
 public:
  explicit DistArgumentError(const std::string& what)
      : DistError(ErrorKind::invalid_argument, what) {}
};

class DistUnsupportedError : public DistError {
 public:
  explicit DistUnsupportedError(const std::string& what)
      : DistError(ErrorKind::unsupported, what) {}
};

class DistStoreError : public DistError {
 public:
  explicit DistStoreError(const std::string& what, ErrorKind kind = ErrorKind::store)
      : DistError(kind, what) {}
};

class QueueEmptyError : public DistStoreError {
 public:
  explicit QueueEmptyError(const std::string& what)
      : DistStoreError(what, ErrorKind::queue_empty) {}
};

class DistTimeoutError : public DistError {
 public:
  explicit DistTimeoutError(const std::string& what, std::optional<int> peer_rank = std::nullopt)
      : DistError(ErrorKind::timeout, what, peer_rank) {}
};

class DistNetworkError : public DistError {
 public:
  explicit DistNetworkError(const std::string& what) : DistError(ErrorKind::network, what) {}
};

class DistBackendError : public DistError {
 public:
  explicit DistBackendError(const std::string& what, std::optional<int> peer_rank = std::nullopt)
      : DistError(ErrorKind::backend, what, peer_rank) {}
};

}  // namespace distrun
