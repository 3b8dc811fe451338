"""Preferences and decisions weigh more than talk, a little."""

from datetime import timedelta

import pytest

from tests.recall.planting import NOW, Planted, World, best_first, contents


async def _plant(world: World, *said: tuple[str, str]) -> None:
    """Messages of a kind, each a minute after the last."""
    for place, (content, kind) in enumerate(said):
        vector = await world.vector_of_query(content)
        (key,) = await world.plant([Planted(content, NOW - timedelta(minutes=60 - place), vector=vector)])
        await world.connection.execute("UPDATE dialogues SET kind = $2 WHERE id = $1", key, kind)


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
@pytest.mark.parametrize("kind", ["preference", "decision"])
async def test_of_two_equal_ones_the_weightier_comes_first(world: World, mode: str, kind: str) -> None:
    # Both stand between the same.
    beside = ("今天下雨", "chat")
    await _plant(world, beside, ("团子打疫苗", kind), beside, beside, ("团子打疫苗", "chat"), beside)
    found = best_first(await world.search("团子打疫苗", mode=mode))
    assert [one.dialogue.kind for one in found[:2]] == [kind, "chat"]
    relevances = [one.relevance or 0.0 for one in found]
    assert 0.9 < relevances[1] / relevances[0] < 1.0
    assert relevances[0] <= 1.0


async def test_what_is_asked_for_comes_before_what_weighs_more(world: World) -> None:
    await _plant(
        world, ("团子打疫苗", "chat"), ("今天下雨", "chat"), ("我喜欢下雨", "preference"), ("你好", "chat")
    )
    assert contents(best_first(await world.search("团子打疫苗")))[0] == "团子打疫苗"
