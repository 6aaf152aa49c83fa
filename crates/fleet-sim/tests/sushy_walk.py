# SPDX-License-Identifier: Apache-2.0
"""Walks through one simulated BMC with sushy, the library that Ironic talks Redfish with.

Usage: sushy_walk.py URL SYSTEM_PATH USER PASSWORD CAPABILITIES
where CAPABILITIES is a JSON object that says what this kind of BMC is expected to do.
"""

import json
import sys
import time

import sushy
from sushy import auth as sushy_auth

url, system_path, user, password, capabilities = sys.argv[1:6]
able = json.loads(capabilities)


def connect(kind=sushy_auth.SessionAuth, secret=password):
    return sushy.Sushy(url, auth=kind(user, secret), verify=False)


def wait_until(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} does not come to pass")


def fresh(resource):
    """Read anew, without what it led to: that may be gone, which sushy would take for an error."""
    resource.invalidate()
    resource.refresh(force=False)
    return resource


def paths(collection):
    return fresh(collection).members_identities


def refused(action, kind=sushy.exceptions.HTTPError):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{action} was not refused")


def power_is(system, state):
    wait_until(f"power state {state}", lambda: fresh(system).power_state == state)


def is_running(system):
    """Boot settings are locked during POST on some BMCs; BootProgress is missing on others."""
    wait_until("the end of POST", lambda: settable(system))


def settable(system):
    try:
        fresh(system).set_system_boot_options(
            target=sushy.BOOT_SOURCE_TARGET_HDD, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)
        return True
    except sushy.exceptions.HTTPError as error:
        # Refused during POST; or POST went on between reading and changing, and the etag is old.
        if error.status_code not in (400, 412, 428):
            raise
        return False


def signing_in():
    refused(lambda: connect(secret="guess").get_system(system_path), sushy.exceptions.AccessError)
    refused(lambda: connect(sushy_auth.BasicAuth, "guess").get_system(system_path),
            sushy.exceptions.AccessError)
    assert connect(sushy_auth.BasicAuth).get_system(system_path).identity
    conn = connect(sushy_auth.SessionOrBasicAuth)
    assert conn.get_system().path.rstrip("/") == system_path
    assert conn.get_session_service().sessions.members_identities


def inventory(system):
    assert system.manufacturer == able["manufacturer"], system.manufacturer
    assert system.memory_summary.size_gib > 0
    count, architecture = system.processors.summary
    assert count > 0 and architecture, (count, architecture)
    macs = system.ethernet_interfaces.summary
    assert len(macs) == able["ports"], macs
    assert system.storage.get_members()
    assert system.storage.drives_sizes_bytes, "drives"
    assert system.chassis and system.managers
    assert fresh(system).status.health == sushy.HEALTH_OK


def power(system):
    power_is(system, sushy.SYSTEM_POWER_STATE_OFF)
    system.reset_system(sushy.RESET_ON)
    power_is(system, sushy.SYSTEM_POWER_STATE_ON)
    if able["minds_what_is_so"]:
        refused(lambda: system.reset_system(sushy.RESET_ON))
    else:
        system.reset_system(sushy.RESET_ON)
    is_running(system)
    system.reset_system(sushy.RESET_GRACEFUL_SHUTDOWN)
    power_is(system, sushy.SYSTEM_POWER_STATE_OFF)
    system.reset_system(sushy.RESET_ON)
    power_is(system, sushy.SYSTEM_POWER_STATE_ON)
    system.reset_system(sushy.RESET_FORCE_RESTART)
    system.reset_system(sushy.RESET_NMI)
    is_running(system)


def boot(system):
    def is_kept():
        system.set_system_boot_options(
            target=sushy.BOOT_SOURCE_TARGET_PXE, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE,
            mode=sushy.BOOT_SOURCE_MODE_UEFI)
        return fresh(system).boot.target == sushy.BOOT_SOURCE_TARGET_PXE

    # Where settings are not locked during POST, the boot under way may use it up.
    wait_until("the next boot is from the network", is_kept)
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_ONCE
    assert system.boot.mode == sushy.BOOT_SOURCE_MODE_UEFI
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the override to be used up",
               lambda: fresh(system).boot.enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED)

    def for_ever():
        fresh(system).set_system_boot_options(
            target=sushy.BOOT_SOURCE_TARGET_HDD, enabled=sushy.BOOT_SOURCE_ENABLED_CONTINUOUS)
    if able["continuous"]:
        for_ever()
        assert fresh(system).boot.enabled == sushy.BOOT_SOURCE_ENABLED_CONTINUOUS
        system.set_system_boot_options(enabled=sushy.BOOT_SOURCE_ENABLED_DISABLED)
    else:
        refused(for_ever, sushy.exceptions.BadRequestError)


def media(system):
    places = [system] if able["media_under_system"] else system.managers
    slots = [slot for place in places for slot in place.virtual_media.get_members()]
    discs = [slot for slot in slots if sushy.VIRTUAL_MEDIA_CD in slot.media_types]
    assert discs, slots
    disc = discs[0]
    assert not disc.inserted
    disc.eject_media()
    disc.insert_media("http://192.0.2.1/agent.iso")
    assert fresh(disc).inserted and disc.image == "http://192.0.2.1/agent.iso", disc.json
    if able["replaces_media"]:
        disc.insert_media("http://192.0.2.1/other.iso")
    else:
        refused(lambda: disc.insert_media("http://192.0.2.1/other.iso"))
    fresh(system).set_system_boot_options(
        target=sushy.BOOT_SOURCE_TARGET_CD, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the disc to be booted",
               lambda: fresh(system).boot.enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED)
    disc.eject_media()
    assert not fresh(disc).inserted and not disc.image


def bios(system):
    settings = system.bios
    registry = settings.get_attribute_registry()
    entries = registry.registry_entries.attributes
    assert len(entries) == len(settings.attributes)
    choice = next(entry for entry in entries
                  if entry.attribute_type == "Enumeration" and not entry.read_only)
    before = settings.attributes[choice.name]
    after = next(value["ValueName"] for value in choice.allowable_values
                 if value["ValueName"] != before)
    settings.set_attribute(choice.name, after)
    assert settings.pending_attributes[choice.name] == after
    assert fresh(settings).attributes[choice.name] == before
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the new setting", lambda: fresh(settings).attributes[choice.name] == after)
    settings.reset_bios()
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the default", lambda: fresh(settings).attributes[choice.name] == before)
    refused(lambda: settings.set_attribute("NoSuchThing", "x"))
    is_running(system)


def secure_boot(system):
    state = system.secure_boot
    assert not state.enabled
    state.set_enabled(True)
    assert fresh(state).enabled
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("secure boot", lambda: fresh(state).current_boot == sushy.SECURE_BOOT_ENABLED)
    state.reset_keys(sushy.SECURE_BOOT_RESET_KEYS_TO_DEFAULT)
    state.set_enabled(False)
    is_running(system)


def finish(conn, monitor, system):
    """Waits for a task, resetting the machine when the task waits for that."""
    was_reset = False
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not monitor.check_is_processing:
            return monitor
        task = monitor.task
        if task and task.task_state == sushy.TASK_STATE_PENDING and not was_reset:
            system.reset_system(sushy.RESET_FORCE_RESTART)
            was_reset = True
        time.sleep(0.02)
    raise AssertionError(f"the task does not end: {monitor.response.body}")


def raid(conn, system):
    controllers = system.storage.get_members()
    controller = controllers[0]
    volumes = controller.volumes
    drives = [drive.path for drive in controller.drives][:2]
    wish = {"RAIDType": "RAID1", "Name": "root", "CapacityBytes": 100 * 1000 ** 3,
            "Links": {"Drives": [{"@odata.id": path} for path in drives]}}
    if not able["raid"]:
        refused(lambda: volumes.create(wish))
        return
    times = volumes.operation_apply_time_support.mapped_supported_values
    apply_time = sushy.APPLY_TIME_IMMEDIATE
    if apply_time not in times:
        apply_time = sushy.APPLY_TIME_ON_RESET
    # A task that is to be done at once is waited for by sushy itself.
    blocking = apply_time == sushy.APPLY_TIME_IMMEDIATE
    made = volumes.create(dict(wish), apply_time=apply_time)
    if not blocking:
        finish(conn, made, system)
    wait_until("the volume", lambda: len(paths(volumes)) == 1)
    volume = volumes.get_members()[0]
    assert volume.raid_type == sushy.RAID_TYPE_RAID1
    assert volume.capacity_bytes == 100 * 1000 ** 3
    assert volume.name == "root"
    deleted = volume.delete(apply_time=apply_time)
    if not blocking:
        finish(conn, deleted, system)
    wait_until("no volume", lambda: not paths(volumes))


def firmware(conn, system):
    service = conn.get_update_service()
    components = service.firmware_inventory.get_members()
    assert all(component.version for component in components)
    before = fresh(system).bios_version
    monitor = service.simple_update("http://192.0.2.1/bios-9.87.65.bin")
    finish(conn, monitor, system)
    wait_until("the new version", lambda: fresh(system).bios_version == "9.87.65")
    assert before != "9.87.65"
    monitor = service.simple_update("http://192.0.2.1/corrupt-bios-1.0.bin")
    finish(conn, monitor, system)
    tasks = conn.get_task_service().tasks.get_members()
    assert sushy.TASK_STATE_EXCEPTION in [task.task_state for task in tasks]
    is_running(system)


def sensors(system):
    chassis = system.chassis[0]
    if not able["thermal"]:
        refused(lambda: chassis.thermal, sushy.exceptions.MissingAttributeError)
        return
    assert [fan.reading for fan in chassis.thermal.fans if fan.reading > 1000]
    assert [it.reading_celsius for it in chassis.thermal.temperatures]
    assert [it.power_capacity_watts for it in chassis.power.power_supplies]


def indicator(system):
    system.set_indicator_led(sushy.INDICATOR_LED_LIT)
    assert fresh(system).indicator_led == sushy.INDICATOR_LED_LIT
    system.set_indicator_led(sushy.INDICATOR_LED_OFF)
    drive = system.storage.get_members()[0].drives[0]
    drive.set_indicator_led(sushy.INDICATOR_LED_LIT)
    assert fresh(drive).indicator_led == sushy.INDICATOR_LED_LIT
    chassis = system.chassis[0]
    chassis.set_indicator_led(sushy.INDICATOR_LED_BLINKING)
    assert fresh(system).indicator_led == sushy.INDICATOR_LED_BLINKING


def events(conn):
    subscriptions = conn.get_event_service().subscriptions
    made = subscriptions.create({
        "Destination": "https://192.0.2.1/events", "Protocol": "Redfish", "Context": "walk",
        "EventTypes": ["Alert"]})
    assert made.destination == "https://192.0.2.1/events" and made.context == "walk"
    assert len(paths(subscriptions)) == 1
    made.delete()
    assert not paths(subscriptions)


def bmc(conn, system):
    manager = system.managers[0]
    assert manager.firmware_version
    manager.reset_manager(sushy.RESET_MANAGER_FORCE_RESTART
                          if hasattr(sushy, "RESET_MANAGER_FORCE_RESTART")
                          else sushy.ResetType.FORCE_RESTART)

    def is_back():
        try:
            # The session is gone with the restart; sushy signs in again.
            return fresh(system).identity
        except sushy.exceptions.ConnectionError:
            return False
    wait_until("the BMC to be back", is_back)


def main():
    signing_in()
    conn = connect()
    system = conn.get_system(system_path)
    inventory(system)
    power(system)
    boot(system)
    media(system)
    bios(system)
    secure_boot(system)
    raid(conn, system)
    firmware(conn, system)
    sensors(system)
    indicator(system)
    events(conn)
    bmc(conn, system)
    print(f"sushy is content with {able['manufacturer']}")


main()
