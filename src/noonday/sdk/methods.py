"""The base of the methods of one resource, and its paged lists."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from noonday.model.view import Page
from noonday.sdk.transport import Transport

T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page)


class Listing(Generic[PageT, T]):
    """A paged list: `async for page in listing`, or `async for item in listing.items()`."""

    def __init__(
        self, fetch: Callable[[str | None], Awaitable[PageT]], items: Callable[[PageT], Sequence[T]], cursor: str | None
    ) -> None:
        self._fetch = fetch
        self._items = items
        self._cursor = cursor

    async def __aiter__(self) -> AsyncIterator[PageT]:
        page = await self._fetch(self._cursor)
        yield page
        while page.next is not None:
            page = await self._fetch(page.next)
            yield page

    async def items(self) -> AsyncIterator[T]:
        async for page in self:
            for item in self._items(page):
                yield item


class ApiMethods:
    """Base of the methods of one resource of the API."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    def _list(
        self,
        kind: type[PageT],
        items: Callable[[PageT], Sequence[T]],
        path: str,
        query: Mapping[str, Any],
        cursor: str | None,
    ) -> Listing[PageT, T]:
        async def fetch(cursor: str | None) -> PageT:
            return await self._http.get(kind, path, {**query, "cursor": cursor})

        return Listing(fetch, items, cursor)
