// A Transport between threads of one process, as unkind as a Transport may be: what is sent is read
// as late as it can be, and memory that is to receive something is spoilt at once.
#pragma once

#include "runtime/worker/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace distrun::test {

struct Letter {
  std::span<const std::byte> content;  // the sender's memory; or, if that is not to be had, `copy`
  std::vector<std::byte> copy;
  bool taken = false;

  void keep_copy() {
    copy.assign(content.begin(), content.end());
    content = copy;
  }
};

struct Post {
  using Box = std::tuple<int, int, Channel>;  // from, to
  // `copies`: what is sent needs nobody who receives it.
  explicit Post(bool copies_all = false) : copies(copies_all) {}
  const bool copies;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Box, std::deque<std::shared_ptr<Letter>>> boxes;
  bool closed = false;
};

class SentLetter final : public Transfer {
 public:
  SentLetter(Post& post, int to, std::shared_ptr<Letter> letter)
      : post_(post), to_(to), letter_(std::move(letter)) {}
  ~SentLetter() override {
    const std::lock_guard lock(post_.mutex);
    if (!letter_->taken) letter_->keep_copy();
  }
  bool wait(TimePoint deadline) override {
    std::unique_lock lock(post_.mutex);
    const auto over = [this] { return letter_->taken || post_.copies || post_.closed; };
    if (!post_.changed.wait_until(lock, deadline, over)) return false;
    if (!letter_->taken && !post_.copies) throw PeerLost(to_, "closed");
    return true;
  }
  int peer() const override { return to_; }

 private:
  Post& post_;
  int to_;
  std::shared_ptr<Letter> letter_;
};

class AwaitedLetter final : public Transfer {
 public:
  // `from`: -1 for anybody.
  AwaitedLetter(Post& post, int from, int to, Channel channel, std::span<std::byte> room)
      : post_(post), from_(from), to_(to), channel_(channel), room_(room) {
    std::fill(room_.begin(), room_.end(), std::byte{0xEE});
  }
  bool wait(TimePoint deadline) override {
    std::unique_lock lock(post_.mutex);
    std::deque<std::shared_ptr<Letter>>* letters = nullptr;
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
    if (!post_.changed.wait_until(lock, deadline, there)) return false;
    if (letters == nullptr) throw PeerLost(from_, "closed");
    Letter& letter = *letters->front();
    EXPECT_LE(letter.content.size(), room_.size());
    if (!letter.content.empty())
      std::memcpy(room_.data(), letter.content.data(), letter.content.size());
    letter.taken = true;
    letters->pop_front();
    post_.changed.notify_all();
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
    auto letter = std::make_shared<Letter>();
    letter->content = message;
    if (post_.copies) letter->keep_copy();
    const std::lock_guard lock(post_.mutex);
    post_.boxes[{rank_, peer, channel}].push_back(letter);
    post_.changed.notify_all();
    return std::make_unique<SentLetter>(post_, peer, std::move(letter));
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
    post_.changed.notify_all();
  }

 private:
  Post& post_;
  int rank_;
  int size_;
};

}  // namespace distrun::test
