// SPDX-License-Identifier: Apache-2.0
// Types of the vendored Preact and htm. Not shipped: build.rs skips `.d.ts` files.

/** What a component returns; templates are not checked, so everything can be a child. */
export type View = unknown;
export type Component<Props> = (props: Props) => View;

/** A mutable box that survives redraws; `current` is set by `ref=` before effects run. */
export interface Ref<T> {
  current: T;
}

type Cleanup = void | (() => void);
type Setter<T> = (next: T | ((before: T) => T)) => void;

export function html(parts: TemplateStringsArray, ...values: unknown[]): View;
export function render(view: View, parent: Element): void;
export function useState<T>(initial: T | (() => T)): [T, Setter<T>];
export function useReducer<S, A>(
  reduce: (state: S, action: A) => S,
  initial: S,
): [S, (action?: A) => void];
export function useEffect(effect: () => Cleanup | unknown, keys?: unknown[]): void;
export function useLayoutEffect(effect: () => Cleanup | unknown, keys?: unknown[]): void;
export function useRef<T>(initial: T): Ref<T>;
export function useRef<T = any>(): Ref<T>;
export function useMemo<T>(compute: () => T, keys: unknown[]): T;
export function useCallback<T extends Function>(callback: T, keys: unknown[]): T;
export function useErrorBoundary(): [any, () => void];
