"""--simulated-nodes: nodes and pods without machines, for tests and `kubechronicle up`.

The modules of the simulation are imported where it is switched on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.version import program_version

if TYPE_CHECKING:
    from kubechronicle.actors.loops.simulated_nodes import Simulation
    from kubechronicle.actors.store import Store
    from kubechronicle.actors.supervisor import ChildSpec
    from kubechronicle.api.registry.registry import Registry
    from kubechronicle.ops.settings.settings import Settings

STAGES: Final = Path(__file__).parent / "stages.yaml"
"""The life of simulated nodes and pods, which kwok understands, too."""
MOST_NODES: Final = 1000


def simulation_of(settings: Settings, registry: Registry) -> Simulation | None:
    """Return the simulation of the settings; None: there is none. OperatorError."""
    if settings.simulated_nodes is None:
        if settings.simulation_stages is not None:
            raise OperatorError("--simulation-stages: give --simulated-nodes, too; 0 makes no nodes")
        return None
    if settings.simulated_nodes > MOST_NODES:
        raise OperatorError(f"--simulated-nodes: must be at most {MOST_NODES}, got {settings.simulated_nodes}")
    from kubechronicle.actors.loops.simulated_nodes import Simulation
    from kubechronicle.api.codecs import yaml
    from kubechronicle.api.codecs.errors import DecodeError
    from kubechronicle.api.simulation.stages import stages_of

    stages = {stage.name: stage for stage in stages_of(yaml.decode_all(STAGES.read_bytes()))}
    file = settings.simulation_stages
    try:
        given = stages_of(yaml.decode_all(file.read_bytes())) if file is not None else []
    except (ValueError, DecodeError) as error:
        raise OperatorError(f"--simulation-stages: {file}: {error}") from None
    stages |= {stage.name: stage for stage in given}
    for stage in given:
        if registry.by_api_version(stage.api_version, stage.kind) is None:
            raise OperatorError(
                f"--simulation-stages: {file}: Stage {stage.name}: {stage.api_version} {stage.kind} is no built-in kind"
            )
    return Simulation(
        nodes=settings.simulated_nodes, schedules=settings.simulated_scheduler, stages=tuple(stages.values())
    )


def simulation_loops(simulation: Simulation | None, store: Store) -> list[ChildSpec]:
    """Return the loops of the simulation, as children of the tree."""
    if simulation is None:
        return []
    from kubechronicle.actors.loops.scheduler import SchedulerLoop
    from kubechronicle.actors.loops.simulated_nodes import SimulatedNodes
    from kubechronicle.actors.loops.stage_loop import StageLoop
    from kubechronicle.actors.supervisor import ChildSpec

    version = f"kubechronicle-{program_version()}"
    loops = [
        ChildSpec(name="simulated-nodes", run=SimulatedNodes(store, simulation.nodes).run),
        ChildSpec(name="stages", run=StageLoop(store, simulation.stages, version=version).run),
    ]
    if simulation.schedules:
        loops.append(ChildSpec(name="simulated-scheduler", run=SchedulerLoop(store).run))
    return loops
