# SPDX-License-Identifier: Apache-2.0
"""Uses all features of one simulated BMC with sushy, Ironic's Redfish library.

Usage: sushy_client.py URL SYSTEM_PATH USER PASSWORD CAPABILITIES
where CAPABILITIES is a JSON object with the expected behaviour of the BMC.
"""

import json
import sys
import time

import sushy
from sushy import auth as sushy_auth

url, system_path, user, password, capabilities = sys.argv[1:6]
expected = json.loads(capabilities)


def connect(kind=sushy_auth.SessionAuth, secret=password):
    return sushy.Sushy(url, auth=kind(user, secret), verify=False)


def wait_until(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"timeout while waiting for {what}")


def refreshed(resource):
    """Refreshes a resource, but not its subresources: sushy fails if one of them is gone."""
    resource.invalidate()
    resource.refresh(force=False)
    return resource


def paths(collection):
    return refreshed(collection).members_identities


def rejected(action, kind=sushy.exceptions.HTTPError):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{action} was not rejected")


def wait_for_power(system, state):
    wait_until(f"power state {state}", lambda: refreshed(system).power_state == state)


def wait_for_post_end(system):
    """Some BMCs lock boot settings during POST; others do not have BootProgress."""
    wait_until("the end of POST", lambda: can_set_boot(system))


def can_set_boot(system):
    try:
        refreshed(system).set_system_boot_options(
            target=sushy.BOOT_SOURCE_TARGET_HDD, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)
        return True
    except sushy.exceptions.HTTPError as error:
        # Rejected during POST, or the ETag is outdated because POST advanced after the read.
        if error.status_code not in (400, 412, 428):
            raise
        return False


def authentication():
    rejected(lambda: connect(secret="guess").get_system(system_path), sushy.exceptions.AccessError)
    rejected(lambda: connect(sushy_auth.BasicAuth, "guess").get_system(system_path),
            sushy.exceptions.AccessError)
    assert connect(sushy_auth.BasicAuth).get_system(system_path).identity
    conn = connect(sushy_auth.SessionOrBasicAuth)
    assert conn.get_system().path.rstrip("/") == system_path
    assert conn.get_session_service().sessions.members_identities


def inventory(system):
    assert system.manufacturer == expected["manufacturer"], system.manufacturer
    assert system.memory_summary.size_gib > 0
    count, architecture = system.processors.summary
    assert count > 0 and architecture, (count, architecture)
    macs = system.ethernet_interfaces.summary
    assert len(macs) == expected["ports"], macs
    assert system.storage.get_members()
    assert system.storage.drives_sizes_bytes, "drives"
    assert system.chassis and system.managers
    assert refreshed(system).status.health == sushy.HEALTH_OK


def power(system):
    wait_for_power(system, sushy.SYSTEM_POWER_STATE_OFF)
    system.reset_system(sushy.RESET_ON)
    wait_for_power(system, sushy.SYSTEM_POWER_STATE_ON)
    if expected["rejects_redundant_reset"]:
        rejected(lambda: system.reset_system(sushy.RESET_ON))
    else:
        system.reset_system(sushy.RESET_ON)
    wait_for_post_end(system)
    system.reset_system(sushy.RESET_GRACEFUL_SHUTDOWN)
    wait_for_power(system, sushy.SYSTEM_POWER_STATE_OFF)
    system.reset_system(sushy.RESET_ON)
    wait_for_power(system, sushy.SYSTEM_POWER_STATE_ON)
    system.reset_system(sushy.RESET_FORCE_RESTART)
    system.reset_system(sushy.RESET_NMI)
    wait_for_post_end(system)


def boot(system):
    def override_is_set():
        system.set_system_boot_options(
            target=sushy.BOOT_SOURCE_TARGET_PXE, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE,
            mode=sushy.BOOT_SOURCE_MODE_UEFI)
        return refreshed(system).boot.target == sushy.BOOT_SOURCE_TARGET_PXE

    # If settings are not locked during POST, the current boot may consume the override.
    wait_until("the boot override", override_is_set)
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_ONCE
    assert system.boot.mode == sushy.BOOT_SOURCE_MODE_UEFI
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the end of the override",
               lambda: refreshed(system).boot.enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED)

    def set_continuous():
        refreshed(system).set_system_boot_options(
            target=sushy.BOOT_SOURCE_TARGET_HDD, enabled=sushy.BOOT_SOURCE_ENABLED_CONTINUOUS)
    if expected["continuous"]:
        set_continuous()
        assert refreshed(system).boot.enabled == sushy.BOOT_SOURCE_ENABLED_CONTINUOUS
        system.set_system_boot_options(enabled=sushy.BOOT_SOURCE_ENABLED_DISABLED)
    else:
        rejected(set_continuous, sushy.exceptions.BadRequestError)


def media(system):
    owners = [system] if expected["media_under_system"] else system.managers
    slots = [slot for owner in owners for slot in owner.virtual_media.get_members()]
    discs = [slot for slot in slots if sushy.VIRTUAL_MEDIA_CD in slot.media_types]
    assert discs, slots
    disc = discs[0]
    assert not disc.inserted
    disc.eject_media()
    disc.insert_media("http://192.0.2.1/agent.iso")
    assert refreshed(disc).inserted and disc.image == "http://192.0.2.1/agent.iso", disc.json
    if expected["replaces_media"]:
        disc.insert_media("http://192.0.2.1/other.iso")
    else:
        rejected(lambda: disc.insert_media("http://192.0.2.1/other.iso"))
    refreshed(system).set_system_boot_options(
        target=sushy.BOOT_SOURCE_TARGET_CD, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the boot from the disc",
               lambda: refreshed(system).boot.enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED)
    disc.eject_media()
    assert not refreshed(disc).inserted and not disc.image


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
    assert refreshed(settings).attributes[choice.name] == before
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the new setting", lambda: refreshed(settings).attributes[choice.name] == after)
    settings.reset_bios()
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("the default", lambda: refreshed(settings).attributes[choice.name] == before)
    rejected(lambda: settings.set_attribute("NoSuchThing", "x"))
    wait_for_post_end(system)


def secure_boot(system):
    state = system.secure_boot
    assert not state.enabled
    state.set_enabled(True)
    assert refreshed(state).enabled
    system.reset_system(sushy.RESET_FORCE_RESTART)
    wait_until("secure boot", lambda: refreshed(state).current_boot == sushy.SECURE_BOOT_ENABLED)
    state.reset_keys(sushy.SECURE_BOOT_RESET_KEYS_TO_DEFAULT)
    state.set_enabled(False)
    wait_for_post_end(system)


def finish(conn, monitor, system):
    """Waits for a task, and resets the machine if the task is pending until a reset."""
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
    raise AssertionError(f"timeout while waiting for a task: {monitor.response.body}")


def raid(conn, system):
    controllers = system.storage.get_members()
    controller = controllers[0]
    volumes = controller.volumes
    drives = [drive.path for drive in controller.drives][:2]
    request = {"RAIDType": "RAID1", "Name": "root", "CapacityBytes": 100 * 1000 ** 3,
            "Links": {"Drives": [{"@odata.id": path} for path in drives]}}
    if not expected["raid"]:
        rejected(lambda: volumes.create(request))
        return
    times = volumes.operation_apply_time_support.mapped_supported_values
    apply_time = sushy.APPLY_TIME_IMMEDIATE
    if apply_time not in times:
        apply_time = sushy.APPLY_TIME_ON_RESET
    # sushy itself waits for an immediate task.
    blocking = apply_time == sushy.APPLY_TIME_IMMEDIATE
    created = volumes.create(dict(request), apply_time=apply_time)
    if not blocking:
        finish(conn, created, system)
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
    before = refreshed(system).bios_version
    monitor = service.simple_update("http://192.0.2.1/bios-9.87.65.bin")
    finish(conn, monitor, system)
    wait_until("the new version", lambda: refreshed(system).bios_version == "9.87.65")
    assert before != "9.87.65"
    monitor = service.simple_update("http://192.0.2.1/corrupt-bios-1.0.bin")
    finish(conn, monitor, system)
    tasks = conn.get_task_service().tasks.get_members()
    assert sushy.TASK_STATE_EXCEPTION in [task.task_state for task in tasks]
    wait_for_post_end(system)


def sensors(system):
    chassis = system.chassis[0]
    if not expected["thermal"]:
        rejected(lambda: chassis.thermal, sushy.exceptions.MissingAttributeError)
        return
    assert [fan.reading for fan in chassis.thermal.fans if fan.reading > 1000]
    assert [it.reading_celsius for it in chassis.thermal.temperatures]
    assert [it.power_capacity_watts for it in chassis.power.power_supplies]


def indicator(system):
    system.set_indicator_led(sushy.INDICATOR_LED_LIT)
    assert refreshed(system).indicator_led == sushy.INDICATOR_LED_LIT
    system.set_indicator_led(sushy.INDICATOR_LED_OFF)
    drive = system.storage.get_members()[0].drives[0]
    drive.set_indicator_led(sushy.INDICATOR_LED_LIT)
    assert refreshed(drive).indicator_led == sushy.INDICATOR_LED_LIT
    chassis = system.chassis[0]
    chassis.set_indicator_led(sushy.INDICATOR_LED_BLINKING)
    assert refreshed(system).indicator_led == sushy.INDICATOR_LED_BLINKING


def events(conn):
    subscriptions = conn.get_event_service().subscriptions
    created = subscriptions.create({
        "Destination": "https://192.0.2.1/events", "Protocol": "Redfish", "Context": "test",
        "EventTypes": ["Alert"]})
    assert created.destination == "https://192.0.2.1/events" and created.context == "test"
    assert len(paths(subscriptions)) == 1
    created.delete()
    assert not paths(subscriptions)


def bmc(conn, system):
    manager = system.managers[0]
    assert manager.firmware_version
    manager.reset_manager(sushy.RESET_MANAGER_FORCE_RESTART
                          if hasattr(sushy, "RESET_MANAGER_FORCE_RESTART")
                          else sushy.ResetType.FORCE_RESTART)

    def is_reachable():
        try:
            # The restart ended the session; sushy opens a new one.
            return refreshed(system).identity
        except sushy.exceptions.ConnectionError:
            return False
    wait_until("the BMC", is_reachable)


def main():
    authentication()
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
    print(f"sushy works with {expected['manufacturer']}")


main()
