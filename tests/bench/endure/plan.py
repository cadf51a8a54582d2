# SPDX-License-Identifier: MPL-2.0
"""What goes wrong, and when: kinds of faults, and a plan of them by its seed.

A kind is a function of the world that begins the fault, waits, and ends it. What it says with `world.disturbed` is what the fault may hold
up; everything else has to go on.
"""

import asyncio
import os
import pathlib
import random
import signal
import socket
import sys

KINDS = {}


def kind(where, early=False):
    """Of a camera, or of the service. `early` ones end the process, so they come in the first third only: then one lives long."""

    def add(function):
        KINDS[function.__name__.replace("_", " ")] = (where, early, function)
        return function

    return add


# ---------------------------------------------------------------------------- a camera


async def camera_fault(world, camera, seconds, **state):
    with world.disturbed(camera):
        for name, value in state.items():
            setattr(camera, name, value)
        await asyncio.sleep(seconds)
        camera.heal()


@kind("camera")
async def camera_hangs_up(world, camera, _seconds):
    with world.disturbed(camera):
        camera.hang_up()


@kind("camera")
async def camera_is_gone(world, camera, seconds):
    camera.is_absent = True
    camera.hang_up()
    await camera_fault(world, camera, seconds)


@kind("camera")
async def camera_freezes(world, camera, seconds):
    await camera_fault(world, camera, seconds, is_frozen=True)


@kind("camera")
async def camera_is_slow(world, camera, seconds):
    await camera_fault(world, camera, seconds, is_slow=True)


@kind("camera")
async def packets_are_lost(world, camera, seconds):
    await camera_fault(world, camera, seconds, lost=0.05)


@kind("camera")
async def packets_are_doubled(world, camera, seconds):
    await camera_fault(world, camera, seconds, doubled=0.2)


@kind("camera")
async def packets_are_swapped(world, camera, seconds):
    await camera_fault(world, camera, seconds, late=0.3)


@kind("camera")
async def bits_are_flipped(world, camera, seconds):
    await camera_fault(world, camera, seconds, flipped=0.05)


@kind("camera")
async def clock_is_wrong(world, camera, seconds):
    await camera_fault(world, camera, seconds, clock=random.Random(seconds).choice([-86400.0, -5.0, 7.0, 3e8]))


@kind("camera")
async def timestamps_jump(world, camera, seconds):
    await camera_fault(world, camera, seconds, jump=random.Random(seconds).choice([90_000 * 60, -90_000 * 30, 1 << 31]))


@kind("camera")
async def another_size(world, camera, seconds):
    await camera_fault(world, camera, seconds, clip=1)


@kind("camera")
async def answers_are_garbage(world, camera, seconds):
    camera.answers_garbage = True
    camera.hang_up()
    await camera_fault(world, camera, seconds)


@kind("camera")
async def source_is_removed_and_added(world, camera, seconds):
    with world.disturbed(camera):
        await world.ask(f"/sources/{camera.name}", "DELETE", expect=(204,))
        await asyncio.sleep(min(seconds, 3))
        await world.ask("/sources", "POST", world.service.source(camera.name), expect=(201,))


# ---------------------------------------------------------------------------- brokers and disks


async def broker_fault(world, broker, begin, end, seconds):
    if broker is None:
        return False
    getattr(broker, begin)()
    await asyncio.sleep(seconds)
    getattr(broker, end)()


@kind("service")
async def mqtt_broker_is_killed(world, seconds):
    return await broker_fault(world, world.mqtt, "kill", "start", seconds)


@kind("service")
async def mqtt_broker_hangs(world, seconds):
    return await broker_fault(world, world.mqtt, "stop", "go_on", seconds)


@kind("service")
async def redis_is_killed(world, seconds):
    return await broker_fault(world, world.redis, "kill", "start", seconds)


@kind("service")
async def redis_hangs(world, seconds):
    return await broker_fault(world, world.redis, "stop", "go_on", seconds)


@kind("service")
async def disk_is_full(world, seconds):
    if not world.disk.is_own:
        return False
    await asyncio.to_thread(world.disk.fill)
    await asyncio.sleep(seconds)
    world.disk.free()


@kind("service")
async def disk_is_read_only(world, seconds):
    if not world.disk.is_own or not world.disk.lock():
        return False
    await asyncio.sleep(seconds)
    world.disk.unlock()


# ---------------------------------------------------------------------------- models


@kind("service")
async def model_is_replaced(world, _seconds):
    world.model = 1 - world.model
    await world.ask("/models/model", "PUT", {"file": str(world.service.models[world.model])}, expect=(202,))


@kind("service")
async def model_is_absent(world, _seconds):
    await world.ask("/models/model", "PUT", {"file": "absent.onnx"}, expect=(400,))


@kind("service")
async def model_is_broken(world, _seconds):
    await world.ask("/models/model", "PUT", {"file": str(world.service.folder / "broken.onnx")}, expect=(202, 400))


# ---------------------------------------------------------------------------- HTTP


@kind("service")
async def http_flood(world, seconds):
    client = str(pathlib.Path(__file__).with_name("flood.py"))
    process = await asyncio.create_subprocess_exec(sys.executable, client, str(world.service.port), str(seconds))
    if await process.wait():
        world.violations.append(f"http flood: its clients ended with status {process.returncode}")


@kind("service")
async def http_client_does_not_read(world, seconds):
    name = world.random.choice(list(world.service.addresses))
    reader, writer = await asyncio.open_connection("127.0.0.1", world.service.port, limit=1 << 10)
    writer.write(f"GET /sources/{name}/live.mjpeg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    await asyncio.sleep(seconds)
    writer.transport.abort()


@kind("service")
async def http_half_a_request(world, seconds):
    sockets = [socket.create_connection(("127.0.0.1", world.service.port)) for _ in range(20)]
    for one in sockets:
        one.send(b"POST /sources HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.sleep(min(seconds, 5))
    for one in sockets:
        one.close()


@kind("service")
async def http_wrong_requests(world, _seconds):
    await world.ask("/sources", "POST", {"name": "x", "adress": "x.mp4"}, expect=(400,))
    await world.ask("/sources", "POST", {"name": next(iter(world.service.addresses)), "address": "x.mp4"}, expect=(400, 409))
    await world.ask("/sources/absent", "DELETE", expect=(404,))


# ---------------------------------------------------------------------------- the configuration


@kind("service")
async def reload_of_the_same(world, seconds):
    await asyncio.to_thread(world.service.write)
    world.service.reload()
    await asyncio.sleep(min(seconds, 3))


@kind("service")
async def reload_with_a_mistake(world, seconds):
    await asyncio.to_thread(world.service.write, (), "lisen = 1")
    world.service.reload()
    await asyncio.sleep(min(seconds, 3))
    await asyncio.to_thread(world.service.write)


@kind("service")
async def reload_without_a_source(world, seconds):
    camera = world.random.choice(world.cameras)
    with world.disturbed(camera):
        await asyncio.to_thread(world.service.write, (camera.name,))
        world.service.reload()
        await asyncio.sleep(min(seconds, 5))
        await asyncio.to_thread(world.service.write)
        world.service.reload()


# ---------------------------------------------------------------------------- the process


@kind("service", early=True)
async def service_is_killed(world, _seconds):
    with world.disturbed(*world.cameras):
        world.lives.end(None)
        await asyncio.to_thread(world.service.kill)
        world.lives.begin()
        await world.all_run()


@kind("service", early=True)
async def service_is_ended(world, _seconds):
    with world.disturbed(*world.cameras):
        status, seconds = await asyncio.to_thread(world.service.terminate)
        world.lives.end((status, seconds))
        world.lives.begin()
        await world.all_run()


@kind("service")
async def service_is_stopped_for_a_moment(world, _seconds):
    # As a machine that swaps, or a debugger.
    with world.disturbed(*world.cameras):
        os.kill(world.service.process.pid, signal.SIGSTOP)
        await asyncio.sleep(1)
        os.kill(world.service.process.pid, signal.SIGCONT)
        await asyncio.sleep(1)


# ---------------------------------------------------------------------------- the plan


def plan(seed, seconds, faults):
    """Rows of second, kind, a number that says which camera, and how long. Each kind comes before any comes again."""
    chance, left, rows = random.Random(seed), [], []
    times = sorted(chance.uniform(0.02, 0.95) * seconds for _ in range(faults))
    for at in times:
        def allowed(name):
            return not KINDS[name][1] or at < seconds / 3

        if not any(map(allowed, left)):
            left = list(KINDS)
            chance.shuffle(left)
        name = next(name for name in left if allowed(name))
        left.remove(name)
        rows.append((at, name, chance.random(), round(chance.uniform(1.0, 12.0), 1)))
    return rows
