#include "tests/runtime/worker/ranks.h"
#include <distrun/device_mesh.h>
#include <distrun/join.h>
#include <distrun/objects.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distrun {
namespace {

using test::expect_nothing_thrown;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As test::as_ranks, with a handle that a mesh can share.
std::vector<std::string> as_world(
    int size, const std::function<void(const std::shared_ptr<ProcessGroup>& world)>& body) {
  return test::as_ranks(size, [&](ProcessGroup& group) {
    body(std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group));
  });
}

TEST(DeviceMesh, HasAGroupAlongEachDimension) {
  expect_nothing_thrown(as_world(4, [](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const auto rank = static_cast<std::size_t>(world->rank());
    EXPECT_THAT(mesh.coordinate(), ElementsAre(rank / 2, rank % 2));
    EXPECT_EQ(mesh.local_rank("tp"), rank % 2);
    EXPECT_EQ(mesh.size("dp"), 2U);
    EXPECT_THAT(mesh.group("dp").global_ranks(),
                ElementsAre(world->rank() % 2, world->rank() % 2 + 2));
    EXPECT_EQ(mesh.group("dp").description(), "mesh_dp");
    std::vector<int> sum{world->rank()};
    mesh.group("tp").all_reduce(sum);
    EXPECT_EQ(sum[0], rank < 2 ? 1 : 5);

    const DeviceMesh column = mesh["dp"];
    EXPECT_EQ(&column.group(), &mesh.group("dp")) << "slicing makes no groups";
    EXPECT_THAT(column.ranks(), ElementsAre(world->rank() % 2, world->rank() % 2 + 2));
    const DeviceMesh flat = mesh.flatten({"dp", "tp"});
    EXPECT_THAT(flat.names(), ElementsAre("dp_tp"));
    EXPECT_EQ(flat.group().size(), 4);
    EXPECT_EQ(flat.local_rank("dp_tp"), rank);

    EXPECT_THROW(static_cast<void>(mesh.group()), DistArgumentError);
    EXPECT_THROW(mesh.slice({"tp", "dp"}), DistArgumentError);
    EXPECT_THROW(column.flatten({"dp", "tp"}), DistArgumentError);
    try {
      static_cast<void>(mesh.group("pp"));
      ADD_FAILURE() << "there is none";
    } catch (const DistArgumentError& error) {
      EXPECT_THAT(error.what(), HasSubstr("no dimension \"pp\"; there are dp, tp"));
    }
  }));
}

TEST(DeviceMesh, OfOneDimensionOverAllIsTheWorldItself) {
  expect_nothing_thrown(as_world(2, [](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    EXPECT_EQ(&mesh.group(), world.get());
    EXPECT_THROW(init_device_mesh(world, {3}, {"dp"}), DistArgumentError);
    EXPECT_THROW(init_device_mesh(world, {2}, {"dp", "tp"}), DistArgumentError);
    EXPECT_THROW(init_device_mesh(world, {2, 1}, {"dp", "dp"}), DistArgumentError);
    EXPECT_THROW(DeviceMesh(world, {2}, {"dp"}, {1, 0}), DistArgumentError);
    EXPECT_THROW(DeviceMesh(world, {2}, {"dp"}, {0, 0}), DistArgumentError);
  }));
}

TEST(DeviceMesh, RanksOutsideAreInNoGroup) {
  expect_nothing_thrown(as_world(3, [](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
    if (world->rank() < 2) {
      mesh.group().barrier();
    } else {
      EXPECT_TRUE(mesh.coordinate().empty());
      EXPECT_THROW(static_cast<void>(mesh.group()), DistArgumentError);
    }
  }));
}

TEST(DeviceMesh, IsMadeFromGroupsThatThereAre) {
  expect_nothing_thrown(as_world(2, [](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh = DeviceMesh::from_groups({world}, {2}, {"dp"}, {0, 1}, world->rank());
    EXPECT_EQ(&mesh.group("dp"), world.get());
    EXPECT_THROW(DeviceMesh::from_groups({world}, {3}, {"dp"}, {0, 1, 2}, world->rank()),
                 DistArgumentError);
  }));
}

// ---- uneven inputs -----------------------------------------------------------------------------

struct Summing : Joinable {
  explicit Summing(ProcessGroup& of_group) : group(of_group) {}
  void step(int value) {
    notify_join_context(*this);
    std::vector<int> sum{value};
    group.all_reduce(sum);
    total += sum[0];
  }
  void shadow() override {
    std::vector<int> nothing{0};
    group.all_reduce(nothing);
  }
  void after(bool is_last) override { last = is_last; }
  ProcessGroup& group;
  int total = 0;
  bool last = false;
};

TEST(Join, WhoHasNoMoreDataShadowsTheOthers) {
  expect_nothing_thrown(test::as_ranks(3, [](ProcessGroup& group) {
    Summing summing(group);
    join_uneven(group, {&summing}, [&] {
      for (int i = 0; i <= group.rank(); ++i) summing.step(1);
    });
    EXPECT_EQ(summing.last, group.rank() == 2);
    if (group.rank() == 2) {
      EXPECT_EQ(summing.total, 3 + 2 + 1);
    }
    summing.step(1);  // outside of it nothing is told
    EXPECT_THROW(join_uneven(group, {}, [] {}), DistArgumentError);
  }));
}

TEST(Join, AllThrowWhenOneHasNoMoreDataIfAskedTo) {
  const auto thrown = test::as_ranks(2, [](ProcessGroup& group) {
    Summing summing(group);
    join_uneven(group, {&summing},
                [&] {
                  for (int i = 0; i < 1 + 2 * group.rank(); ++i) summing.step(1);
                },
                {.throw_on_early_termination = true});
  });
  EXPECT_THAT(thrown[0], HasSubstr("this rank (0) has run out of data before others"));
  EXPECT_THAT(thrown[1], HasSubstr("a rank has run out of data before this one (rank 1)"));
}

// ---- objects -----------------------------------------------------------------------------------

TEST(Objects, TravelAsTheyAre) {
  using nlohmann::json;
  expect_nothing_thrown(test::as_ranks(3, [](ProcessGroup& group) {
    const json mine{{"rank", group.rank()},
                    {"text", std::string(100u * static_cast<unsigned>(group.rank()), 'x')}};
    const auto all = all_gather_object(group, mine);
    EXPECT_EQ(all[2]["text"].get<std::string>().size(), 200U);
    const auto at_one = gather_object(group, mine, 1);
    EXPECT_EQ(at_one.size(), group.rank() == 1 ? 3U : 0U);
    std::vector<json> list(2);
    if (group.rank() == 2) list = {json("a"), json(nullptr)};
    broadcast_object_list(group, list, 2);
    EXPECT_THAT(list, ElementsAre(json("a"), json(nullptr)));
    const auto part = scatter_object(
        group,
        group.rank() == 0 ? std::vector<json>{10, 11.5, json::array({12})} : std::vector<json>{},
        0);
    EXPECT_EQ(part, (std::vector<json>{10, 11.5,
                                       json::array({12})})[static_cast<std::size_t>(group.rank())]);
    std::vector<json> one(1);
    if (group.rank() == 0) send_object_list(group, {json("hello")}, 2, 7);
    if (group.rank() == 2) {
      EXPECT_EQ(recv_object_list(group, one, std::nullopt, 7), 0);
      EXPECT_EQ(one[0], "hello");
    }
  }));
}

TEST(Objects, ListsOfDifferentLengthAreToldByWhoExpectsAnother) {
  const auto thrown = test::as_ranks(2, [](ProcessGroup& group) {
    std::vector<nlohmann::json> list(group.rank() == 0 ? 2 : 3);
    broadcast_object_list(group, list, 0);
  });
  EXPECT_THAT(thrown[1], HasSubstr("rank 0 gave 2 objects, where this rank expects 3"));
}

}  // namespace
}  // namespace distrun
