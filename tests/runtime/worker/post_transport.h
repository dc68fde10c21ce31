// A Transport between threads of one process: mailboxes, where a message is copied when it is sent.
#pragma once

#include "runtime/worker/transport.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace distrun::test {

struct Post {
  using Box = std::tuple<int, int, Channel>;  // from, to
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<Box, std::deque<std::vector<std::byte>>> boxes;
  bool closed = false;
};

class SentLetter final : public Transfer {
 public:
  explicit SentLetter(int to) : to_(to) {}
  bool wait(TimePoint) override { return true; }
  int peer() const override { return to_; }

 private:
  int to_;
};

class AwaitedLetter final : public Transfer {
 public:
  // `from`: -1 for anybody.
  AwaitedLetter(Post& post, int from, int to, Channel channel, std::span<std::byte> room)
      : post_(post), from_(from), to_(to), channel_(channel), room_(room) {}
  bool wait(TimePoint deadline) override {
    std::unique_lock lock(post_.mutex);
    std::deque<std::vector<std::byte>>* letters = nullptr;
    const auto there = [&] {
      for (auto& [box, content] : post_.boxes) {
        const auto& [from, to, channel] = box;
        if (content.empty() || to != to_ || channel != channel_) continue;
        if (from_ != -1 && from != from_) continue;
        letters = &content;
        from_ = from;
        return true;
      }
      return post_.closed;
    };
    if (!post_.arrived.wait_until(lock, deadline, there)) return false;
    if (letters == nullptr) throw PeerLost(from_, "closed");
    EXPECT_LE(letters->front().size(), room_.size());
    if (!letters->front().empty())
      std::memcpy(room_.data(), letters->front().data(), letters->front().size());
    letters->pop_front();
    return true;
  }
  int peer() const override { return from_; }

 private:
  Post& post_;
  int from_;
  int to_;
  Channel channel_;
  std::span<std::byte> room_;
};

class PostTransport final : public Transport {
 public:
  PostTransport(Post& post, int rank, int size) : post_(post), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Transfer> send(int peer, std::span<const std::byte> message,
                                 Channel channel) override {
    const std::lock_guard lock(post_.mutex);
    post_.boxes[{rank_, peer, channel}].emplace_back(message.begin(), message.end());
    post_.arrived.notify_all();
    return std::make_unique<SentLetter>(peer);
  }
  std::unique_ptr<Transfer> receive(int peer, std::span<std::byte> room, Channel channel) override {
    return std::make_unique<AwaitedLetter>(post_, peer, rank_, channel, room);
  }
  std::unique_ptr<Transfer> receive_any(std::span<std::byte> room, Channel channel) override {
    return std::make_unique<AwaitedLetter>(post_, -1, rank_, channel, room);
  }
  void close() override {
    const std::lock_guard lock(post_.mutex);
    post_.closed = true;
    post_.arrived.notify_all();
  }

 private:
  Post& post_;
  int rank_;
  int size_;
};

}  // namespace distrun::test
